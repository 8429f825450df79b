"""Adds a header."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform
from headrace.sdk.config import (
    Importance,
    NonNull,
    Settings,
    setting,
)
from headrace.sdk.sqltext import literal
from headrace_plugins.kafka.headers import header_sql, with_headers
from headrace_plugins.kafka.value_parsing import parse_string

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class InsertHeaderSettings(Settings):
    """The settings of ``InsertHeader``."""

    header: str = setting(
        "The name of the header.", validator=NonNull(), importance=Importance.HIGH
    )
    value_literal: str = setting(
        "The literal value that is to be set as the header value on all records.",
        validator=NonNull(),
        importance=Importance.HIGH,
    )


class InsertHeader(Transform):
    """Adds a header with a constant value to each record.

    The value gets the type that Kafka Connect gives it: `123` is a number, `true` a boolean,
    `[1,2]` an array, `2019-08-23` a date, and whatever is nothing else a text.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertHeader",)
    parts = False

    settings: InsertHeaderSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        parsed = parse_string(self.settings.value_literal)
        text = "NULL" if parsed.text is None else literal(parsed.text)
        added = header_sql(self.settings.header, text, parsed.kind)
        return replace(shape, headers=with_headers(shape.headers, [added]))
