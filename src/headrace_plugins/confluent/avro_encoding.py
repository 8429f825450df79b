"""SQL that gives values the types that Spark writes as Avro, and says which do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import RecordError, Type
from headrace.sdk.schema import TIME
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value
from headrace_plugins.confluent.avro_schemas import connect_of, member_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.sdk import Schema
    from headrace_plugins.confluent.avro_types import AvroField, AvroType

_NUMBERS = {
    "int": {Type.INT8, Type.INT16, Type.INT32},
    "long": {Type.INT8, Type.INT16, Type.INT32, Type.INT64},
    "float": {Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32},
    "double": {
        Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64,
    },
}  # fmt: skip
_SAME = {
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "enum": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
}


class AvroShaper:
    """Shapes values for ``to_avro``.

    Args:
        enhanced: Whether branches of unions are called by their full names.
    """

    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced

    def shaped(self, sql: str, schema: Schema, type_: AvroType, depth: int = 0) -> str:
        """Return SQL for a value as Spark writes it by ``engine_tree(type_)``.

        Raises:
            RecordError: Values of the schema cannot be written as the type.
        """
        one = type_.optional_part or type_.only_part
        if one is not None:
            return self.shaped(sql, schema, one, depth)
        match type_.kind:
            case "union":
                return self._union(sql, schema, type_, depth)
            case "record" if schema.type is Type.STRUCT:
                return self._record(sql, schema, type_, depth)
            case "map" if schema.key_schema is not None and schema.value_schema is not None:
                if schema.key_schema.type is Type.STRING:
                    value = self.shaped(
                        f"x{depth}", schema.value_schema, type_.parts[0], depth + 1
                    )
                    same = value == f"x{depth}"
                    return (
                        sql
                        if same
                        else f"transform_values({sql}, (k{depth}, x{depth}) -> {value})"
                    )
            case "array" if schema.key_schema is not None and type_.is_entry:
                entries = f"map_entries({sql})"
                value = self._entry(f"x{depth}", schema, type_.parts[0], depth + 1)
                return f"transform({entries}, x{depth} -> {value})"
            case "array" if schema.type is Type.ARRAY and schema.value_schema is not None:
                value = self.shaped(f"x{depth}", schema.value_schema, type_.parts[0], depth + 1)
                return sql if value == f"x{depth}" else f"transform({sql}, x{depth} -> {value})"
            case _:
                return _scalar(sql, schema, type_)
        raise _misfit(schema, type_)

    def _entry(self, item: str, schema: Schema, entry: AvroType, depth: int) -> str:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        key = self.shaped(f"{item}.key", keys, entry.fields[0].type, depth)
        value = self.shaped(f"{item}.value", values, entry.fields[1].type, depth)
        return f"named_struct('key', {key}, 'value', {value})"

    def _union(self, sql: str, schema: Schema, type_: AvroType, depth: int) -> str:
        members = []
        for place, branch in enumerate(type_.branches):
            field = schema.field(member_name(branch, enhanced=self._enhanced))
            if field is None:
                raise _misfit(schema, type_)
            own = f"{sql}.{quote(field.name)}"
            value = self.shaped(own, field.schema, branch, depth)
            boxed = f"IF({own} IS NULL, NULL, named_struct('x', {value}))"
            members.append(f"'member{place}', {boxed}")
        return f"IF({sql} IS NULL, NULL, named_struct({', '.join(members)}))"

    def _record(self, sql: str, schema: Schema, type_: AvroType, depth: int) -> str:
        pairs, changed = [], False
        extra = {field.name for field in schema.fields} - {f.name for f in type_.fields}
        if extra:
            names = ", ".join(sorted(extra))
            raise RecordError(problem=f"The Avro schema {type_.name} lacks the fields {names}.")
        for field in type_.fields:
            own = schema.field(field.name)
            member = f"{sql}.{quote(field.name)}"
            if own is None:
                value = self._lacking(field, type_, depth)
            else:
                value = self.shaped(member, own.schema, field.type, depth)
            changed = changed or value != member
            pairs.append(f"{literal(field.name)}, {value}")
        changed = changed or [f.name for f in schema.fields] != [f.name for f in type_.fields]
        return f"IF({sql} IS NULL, NULL, named_struct({', '.join(pairs)}))" if changed else sql

    def _lacking(self, field: AvroField, around: AvroType, depth: int) -> str:
        """Return SQL for a field of the Avro schema that the values do not have."""
        if not field.has_default and not field.type.is_nullable:
            raise RecordError(problem=f"The records lack {field.name}, which has no default.")
        known = connect_of(around, enhanced=self._enhanced).field(field.name)
        assert known is not None
        value = sql_value(known.schema, known.schema.default)
        return self.shaped(value, known.schema, field.type, depth)


def _scalar(sql: str, schema: Schema, type_: AvroType) -> str:
    logical = type_.logical
    if logical is not None or schema.is_logical:
        return _of_logical(sql, schema, type_)
    if schema.type in _NUMBERS.get(type_.kind, ()):
        own = {"int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"}[type_.kind]
        return sql if sql_type(schema) == own else f"CAST({sql} AS {own})"
    if _SAME.get(type_.kind) is schema.type:
        return sql
    raise _misfit(schema, type_)


def _of_logical(sql: str, schema: Schema, type_: AvroType) -> str:
    target = connect_of(type_)
    if schema.name != target.name:
        raise _misfit(schema, type_)
    if schema.name == TIME:
        return sql if type_.logical == "time-micros" else f"CAST({sql} DIV 1000 AS INT)"
    if sql_type(schema) == sql_type(target):
        return sql
    return f"try_cast({sql} AS {sql_type(target)})"


def _misfit(schema: Schema, type_: AvroType) -> RecordError:
    kind = schema.name or schema.type.value
    named = type_.name or type_.logical or type_.kind
    return RecordError(problem=f"Values of {kind} are no Avro {named}.")


def unwritable(
    sql: str, type_: AvroType, path: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield what must not be true of a shaped value, and where: Spark would fail at it.

    The value itself may be null, as null is written by no converter.
    """
    one = type_.optional_part or type_.only_part
    if one is not None:
        yield from unwritable(sql, one, path, depth)
    elif type_.kind == "union":
        yield from _in_union(sql, type_, path, depth)
    elif type_.kind == "enum":
        symbols = ", ".join(literal(symbol) for symbol in type_.facts["symbols"])
        yield path, f"coalesce({sql} NOT IN ({symbols}), false)"
    elif type_.kind == "fixed" and type_.logical is None:
        yield path, f"coalesce(octet_length({sql}) <> {int(type_.facts['size'])}, false)"
    else:
        yield from _in_parts(sql, type_, path, depth)


def _in_union(sql: str, type_: AvroType, path: str, depth: int) -> Iterator[tuple[str, str]]:
    members = [f"{sql}.member{place}" for place in range(len(type_.branches))]
    absent = " AND ".join(f"{member} IS NULL" for member in members)
    yield path, f"({sql} IS NOT NULL AND {absent})"
    for member, part in zip(members, type_.branches, strict=True):
        yield from unwritable(f"{member}.x", part, path, depth)


def _in_parts(sql: str, type_: AvroType, path: str, depth: int) -> Iterator[tuple[str, str]]:
    for field in type_.fields:
        where = f"{path}.{field.name}".strip(".")
        for own, condition in _within(f"{sql}.{quote(field.name)}", field.type, where, depth):
            yield own, f"({sql} IS NOT NULL AND {condition})"
    if type_.kind in {"array", "map"}:
        item = f"x{depth}"
        items = f"map_values({sql})" if type_.kind == "map" else sql
        for own, condition in _within(item, type_.parts[0], f"{path} item", depth + 1):
            yield own, f"coalesce(exists({items}, {item} -> {condition}), false)"


def _within(sql: str, type_: AvroType, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if not type_.is_nullable:
        yield path, f"({sql} IS NULL)"
    yield from unwritable(sql, type_, path, depth)
