"""A predicate by header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate
from headrace.sdk.config import (
    Importance,
    NonEmptyString,
    Settings,
    setting,
)
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class HasHeaderKeySettings(Settings):
    """The settings of ``HasHeaderKey``."""

    name: str = setting(
        "The header name.", validator=NonEmptyString(), importance=Importance.MEDIUM
    )


class HasHeaderKey(Predicate):
    """Is true for records that have at least one header of a name."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.HasHeaderKey",)

    settings: HasHeaderKeySettings

    @override
    def condition(self, shape: RecordExpr) -> str:
        name = literal(self.settings.name)
        return f"coalesce(exists({shape.headers}, h -> h.key = {name}), false)"
