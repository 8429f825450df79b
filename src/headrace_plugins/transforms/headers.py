"""Transforms of headers: InsertHeader, DropHeaders and HeaderFrom; and headers in SQL.

In SQL they are `array<struct<key,value,type>>`, in the order in which they were added. A
header's value is the text from `headrace.sdk.connectjson.to_string`, its type the name from
`headrace.sdk.connectjson.type_name`. A header from a schemaless value has no type.
"""

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
from headrace.sdk.schema import DATE, TIME, TIMESTAMP, Type
from headrace.sdk.sqltext import FieldSyntax, literal, quote
from headrace.sdk.struct_exprs import defaulted
from headrace_plugins.kafka_compat.value_parsing import parse_string
from headrace_plugins.transforms.fields import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.schema import Schema
    from headrace.sdk.sqltext import FieldPath


_LOGICAL = {
    DATE: "date_format({0}, 'yyyy-MM-dd')",
    # In Spark columns, a Time is a number of microseconds.
    TIME: "date_format(timestamp_micros({0}), 'HH:mm:ss.SSS\\'Z\\'')",
    TIMESTAMP: "date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS\\'Z\\'')",
}


def with_headers(headers: str, added: Sequence[str]) -> str:
    """Return SQL that appends headers; see `header_sql`."""
    return f"concat(coalesce({headers}, array()), array({', '.join(added)}))"


def without_headers(headers: str, names: Sequence[str]) -> str:
    """Return SQL that removes all headers with these names."""
    listed = ", ".join(literal(name) for name in names)
    return f"filter({headers}, h -> h.key NOT IN ({listed}))"


def header_sql(name: str, value: str, kind: str | None) -> str:
    """Return SQL of one header; ``value`` is SQL of its text, ``kind`` the name of its type."""
    type_ = "CAST(NULL AS STRING)" if kind is None else literal(kind)
    text = f"CAST({value} AS STRING)"
    return f"named_struct('key', {literal(name)}, 'value', {text}, 'type', {type_})"


def text_sql(sql: str, schema: Schema, *, embedded: bool = False, depth: int = 0) -> str:
    """Return SQL of a value's text, in the format of `headrace.sdk.connectjson.to_string`.

    Repeats the SQL of the value. If ``embedded`` in an array, a map or a struct, strings are
    quoted and nulls are written as null; ``depth`` is the number of enclosing values.
    """
    text = f"CAST({sql} AS STRING)"
    if schema.is_logical and str(schema.name) in _LOGICAL:
        text = _LOGICAL[str(schema.name)].format(sql)
    elif schema.type in (Type.ARRAY, Type.MAP, Type.STRUCT):
        text = _compound(sql, schema, depth + 1)
    elif schema.type is Type.BYTES and type_name(schema) == "bytes":
        text = f"concat('\"', base64({sql}), '\"')" if embedded else f"base64({sql})"
    elif schema.type is Type.STRING:
        escaped = f"replace(replace({sql}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
        text = f"concat('\"', {escaped}, '\"')" if embedded else sql
    return f"coalesce({text}, 'null')" if embedded else text


def _compound(sql: str, schema: Schema, depth: int) -> str:
    item = f"x{depth}"  # nested lambdas need different names
    if schema.type is Type.STRUCT:
        pairs = []
        for field in schema.fields:
            name = field.name.replace("\\", "\\\\").replace('"', '\\"')
            quoted = literal(f'"{name}":')
            # A null member is replaced by its default, as in Kafka Connect.
            member, _ = defaulted((f"{sql}.{quote(field.name)}", field.schema))
            text = text_sql(member, field.schema, embedded=True, depth=depth)
            pairs.append(f"{quoted}, {text}")
        members = ", ',', ".join(pairs)
        text = f"concat('{{', {members}, '}}')" if pairs else "'{}'"
        return f"IF({sql} IS NULL, NULL, {text})"
    assert schema.value_schema is not None
    if schema.key_schema is None:
        text = text_sql(item, schema.value_schema, embedded=True, depth=depth)
        return f"concat('[', array_join(transform({sql}, {item} -> {text}), ','), ']')"
    key = text_sql(f"{item}.key", schema.key_schema, embedded=True, depth=depth)
    value = text_sql(f"{item}.value", schema.value_schema, embedded=True, depth=depth)
    entries = f"transform(map_entries({sql}), {item} -> concat({key}, ':', {value}))"
    return f"concat('{{', array_join({entries}, ','), '}}')"


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


class HeaderFromSettings(NullDefaults, FieldSyntax):
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
