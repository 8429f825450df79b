"""Transforms of headers: InsertHeader, DropHeaders and HeaderFrom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    NonEmptyList,
    NonNull,
    Settings,
    ValidList,
    ValidString,
    setting,
)
from headrace.sdk.connectjson import type_name
from headrace.sdk.sqltext import FieldSyntax, literal
from headrace.sdk.struct_exprs import defaulted
from headrace_plugins.kafka_compat.headers import (
    header_sql,
    text_sql,
    with_headers,
    without_headers,
)
from headrace_plugins.kafka_compat.value_parsing import parse_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.sqltext import FieldPath


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

    The value gets the type that Kafka Connect infers: `123` is a number, `true` a boolean,
    `[1,2]` an array, `2019-08-23` a date, and everything else a string.
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


class DropHeadersSettings(Settings):
    """The settings of ``DropHeaders``."""

    headers: tuple[str, ...] = setting(
        "The name of the headers to be removed.",
        validator=ValidList(unique=True, allow_empty=False),
        importance=Importance.HIGH,
    )


class DropHeaders(Transform):
    """Removes all headers of some names from each record."""

    aliases = ("org.apache.kafka.connect.transforms.DropHeaders",)
    parts = False

    settings: DropHeadersSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        names = self.settings.headers
        return replace(shape, headers=without_headers(shape.headers, names))


def _check_lengths(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    fields, headers = (str(props.get(key) or "").split(",") for key in ("fields", "headers"))
    if len(fields) != len(headers):
        yield ConfigError(
            problem="'fields' config must have the same number of elements as 'headers' "
            "config.",
            field="headers",
            fix="Set one header for each field.",
        )


class HeaderFromSettings(FieldSyntax):
    """The settings of ``HeaderFrom``."""

    fields: tuple[str, ...] = setting(
        "Field names in the record whose values are to be copied or moved to headers.",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )
    headers: tuple[str, ...] = setting(
        "Header names, in the same order as the field names listed in the fields "
        "configuration property.",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )
    operation: str = setting(
        "Either move if the fields are to be moved to the headers (removed from "
        "the key/value), or copy if the fields are to be copied to the headers "
        "(retained in the key/value).",
        validator=ValidString("move", "copy"),
        importance=Importance.HIGH,
    )
    replace_null_with_default: bool = setting(
        "Whether a field that is null gets the default of its schema, if it has one.",
        default=True,
        importance=Importance.MEDIUM,
    )

    rules = (_check_lengths,)


class HeaderFrom(Transform):
    """Moves or copies fields of the key or the value to headers, in the configured order."""

    aliases = ("org.apache.kafka.connect.transforms.HeaderFrom",)

    settings: HeaderFromSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        operation = self.settings.operation
        purpose = f"header {operation}"
        shape, part = self.whole_struct(shape, purpose)
        if part is None:
            return shape
        paths = self.settings.field_paths(self.settings.fields)
        missing = [".".join(path.steps) for path in paths if part.find(path) is None]
        if missing and not part.schemaless:
            error = UnfitRecordError(
                message=f"Field does not exist: {missing[0]}",
                exception="java.lang.NullPointerException",
            )
            return replace(self.refusing(shape, error), unfit=True)
        names = self.settings.headers
        added = [
            self._header(part, path, name) for path, name in zip(paths, names, strict=True)
        ]
        shape = replace(shape, headers=with_headers(shape.headers, added))
        if operation == "copy":
            return shape
        left = part.removed(paths)
        return self.with_part(shape, left.defaulted() if self._with_defaults else left)

    @property
    def _with_defaults(self) -> bool:
        return self.settings.replace_null_with_default

    def _header(self, part: ValueExpr, path: FieldPath, name: str) -> str:
        column = part.find(path)
        if column is None:
            return header_sql(name, "NULL", None)
        sql, schema = column
        if self._with_defaults and not part.schemaless:
            sql, schema = defaulted(column)
        kind = None if part.schemaless else type_name(schema)
        return header_sql(name, text_sql(sql, schema), kind)
