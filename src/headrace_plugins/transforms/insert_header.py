"""Adds a header."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance, NonNull
from headrace_plugins.kafka.headers import header_sql, with_headers
from headrace_plugins.kafka.value_parsing import parse_string

if TYPE_CHECKING:
    from headrace.sdk import Shape


class InsertHeader(Transform):
    """Adds a header with a constant value to each record.

    The value gets the type that Kafka Connect gives it: `123` is a number, `true` a boolean,
    `[1,2]` an array, `2019-08-23` a date, and whatever is nothing else a text.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertHeader",)
    parts = False

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "header",
                ConfigType.STRING,
                validator=NonNull(),
                importance=Importance.HIGH,
                doc="The name of the header.",
            )
            .define(
                "value.literal",
                ConfigType.STRING,
                validator=NonNull(),
                importance=Importance.HIGH,
                doc="The literal value that is to be set as the header value on all records.",
            )
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        parsed = parse_string(self.config.get_str("value.literal"))
        text = "NULL" if parsed.text is None else literal(parsed.text)
        added = header_sql(self.config.get_str("header"), text, parsed.kind)
        return replace(shape, headers=with_headers(shape.headers, [added]))
