"""Removes headers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform
from headrace.sdk.config import ConfigDef, ConfigType, Importance, ValidList
from headrace_plugins.kafka.headers import without_headers

if TYPE_CHECKING:
    from headrace.sdk import Shape


class DropHeaders(Transform):
    """Removes all headers of some names from each record."""

    aliases = ("org.apache.kafka.connect.transforms.DropHeaders",)
    parts = False

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define(
            "headers",
            ConfigType.LIST,
            validator=ValidList(unique=True, allow_empty=False),
            importance=Importance.HIGH,
            doc="The name of the headers to be removed.",
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        names = self.config.get_list("headers")
        return replace(shape, headers=without_headers(shape.headers, names))
