"""A predicate by header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance, NonEmptyString

if TYPE_CHECKING:
    from headrace.sdk import Shape


class HasHeaderKey(Predicate):
    """Is true for records that have at least one header of a name."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.HasHeaderKey",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define(
            "name",
            ConfigType.STRING,
            validator=NonEmptyString(),
            importance=Importance.MEDIUM,
            doc="The header name.",
        )

    @override
    def condition(self, shape: Shape) -> str:
        name = literal(self.config.get_str("name"))
        return f"coalesce(exists({shape.headers}, h -> h.key = {name}), false)"
