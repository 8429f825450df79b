"""SQL expressions that convert values to Avro and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.sdk import RecordError, Type
from headrace.sdk.schema import DECIMAL, NUMBERS, TIME
from headrace.sdk.sqltext import literal, quote, sql_null, sql_type, sql_value
from headrace_plugins.confluent.avro_schemas import AvroType, connect_of, member_name
from headrace_plugins.converters.json_converter import inexact_millis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.sdk import Schema
    from headrace_plugins.confluent.avro_schemas import AvroField


_NUMBERS = {"int": NUMBERS[:3], "long": NUMBERS[:4], "float": NUMBERS[:5], "double": NUMBERS}
_SAME = {
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "enum": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
}


class AvroShaper:
    """Converts values to the input of ``to_avro``; see `connect_of` for ``enhanced``."""

    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced

    def shaped(self, sql: str, schema: Schema, type_: AvroType, depth: int = 0) -> str:
        """Return SQL for a value in the form that ``engine_tree(type_)`` requires.

        Raises RecordError if values of the schema cannot be written as the type.
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
                    item = f"x{depth}"
                    value = self.shaped(item, schema.value_schema, type_.parts[0], depth + 1)
                    changed = f"transform_values({sql}, (k{depth}, {item}) -> {value})"
                    return sql if value == item else changed
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
            raise RecordError(
                problem=f"The Avro schema {type_.name} does not have the fields {names}."
            )
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
            raise RecordError(
                problem=f"The records do not have the field {field.name}, which has no default."
            )
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


def inexact(
    sql: str, schema: Schema, type_: AvroType, *, enhanced: bool, path: str = "", depth: int = 0
) -> Conditions:
    """Yield conditions for values that Avro cannot represent exactly, such as microseconds."""

    def parts(
        own: str, part: Schema, kind: AvroType, where: str, deeper: int = 0
    ) -> Conditions:
        return inexact(own, part, kind, enhanced=enhanced, path=where, depth=depth + deeper)

    one = type_.optional_part or type_.only_part
    if one is not None:
        yield from parts(sql, schema, one, path)
        return
    if schema.is_logical:
        if (condition := _inexact(sql, schema, type_)) is not None:
            yield path, condition
        return
    branches = [(member_name(each, enhanced=enhanced), each) for each in type_.branches]
    members = branches if type_.kind == "union" else [(f.name, f.type) for f in type_.fields]
    for name, kind in members:
        if (field := schema.field(name)) is not None:
            own = f"{sql}.{quote(name)}"
            yield from parts(own, field.schema, kind, f"{path}.{name}".strip("."))
    if type_.kind not in {"array", "map"} or schema.value_schema is None:
        return
    item, items = f"x{depth}", sql
    inside = [(item, schema.value_schema, type_.parts[0])]
    if schema.key_schema is not None and type_.is_entry:
        items = f"map_entries({sql})"
        key, value = (field.type for field in type_.parts[0].fields)
        inside = [
            (f"{item}.key", schema.key_schema, key),
            (f"{item}.value", schema.value_schema, value),
        ]
    elif schema.key_schema is not None:
        items = f"map_values({sql})"
    for own, part, kind in inside:
        for where, condition in parts(own, part, kind, f"{path} item", 1):
            yield where, f"exists({items}, {item} -> {condition})"


def _inexact(sql: str, schema: Schema, type_: AvroType) -> str | None:
    if type_.logical in {"time-millis", "timestamp-millis"}:
        return inexact_millis(sql, schema)
    if schema.name == DECIMAL:
        written = _of_logical(sql, schema, type_)
        return None if written == sql else f"NOT ({written} <=> {sql})"
    return None


def _misfit(schema: Schema, type_: AvroType) -> RecordError:
    kind = schema.name or schema.type.value
    named = type_.name or type_.logical or type_.kind
    return RecordError(problem=f"Cannot write values of {kind} as Avro {named}.")


Conditions: TypeAlias = "Iterator[tuple[str, str]]"
"""Pairs of the path of a faulty part of a value, and the SQL condition for the fault."""


def unwritable(sql: str, type_: AvroType) -> Conditions:
    """Yield the conditions for shaped values that would make ``to_avro`` fail.

    The value itself may be null, as no converter writes nulls.
    """
    return _inside(sql, type_, _refused, nulls=True)


def _refused(sql: str, type_: AvroType) -> str | None:
    if type_.kind == "union":
        members = (f"{sql}.member{place} IS NULL" for place in range(len(type_.branches)))
        return f"({sql} IS NOT NULL AND {' AND '.join(members)})"
    if type_.kind == "enum":
        symbols = ", ".join(literal(symbol) for symbol in type_.facts["symbols"])
        return f"coalesce({sql} NOT IN ({symbols}), false)"
    if type_.kind == "fixed" and type_.logical is None:
        return f"coalesce(octet_length({sql}) <> {int(type_.facts['size'])}, false)"
    return None


def _inside(
    sql: str,
    type_: AvroType,
    wrong: Callable[[str, AvroType], str | None],
    path: str = "",
    depth: int = 0,
    *,
    nulls: bool,
) -> Conditions:
    """Yield the conditions of a value and of its parts; with ``nulls``, of null parts too."""
    one = type_.optional_part or type_.only_part
    if one is not None:
        yield from _inside(sql, one, wrong, path, depth, nulls=nulls)
        return
    if (condition := wrong(sql, type_)) is not None:
        yield path, condition
    if type_.kind == "union":
        for place, part in enumerate(type_.branches):
            yield from _inside(f"{sql}.member{place}.x", part, wrong, path, depth, nulls=nulls)

    def within(own: str, part: AvroType, where: str, depth: int) -> Conditions:
        if nulls and not part.is_nullable:
            yield where, f"({own} IS NULL)"
        yield from _inside(own, part, wrong, where, depth, nulls=nulls)

    for field in type_.fields:
        name = f"{path}.{field.name}".strip(".")
        for where, condition in within(f"{sql}.{quote(field.name)}", field.type, name, depth):
            yield where, f"({sql} IS NOT NULL AND {condition})"
    if type_.kind in {"array", "map"}:
        item = f"x{depth}"
        items = f"map_values({sql})" if type_.kind == "map" else sql
        for where, condition in within(item, type_.parts[0], f"{path} item", depth + 1):
            yield where, f"coalesce(exists({items}, {item} -> {condition}), false)"


_SMALL = {"int8": "TINYINT", "int16": "SMALLINT"}
_MOST = {"int8": (1 << 7) - 1, "int16": (1 << 15) - 1}
_TIMES = {"time-millis": "CAST({} AS BIGINT) * 1000"}


def connected(sql: str, type_: AvroType, schema: Schema, depth: int = 0) -> str:
    """Return SQL that converts a value to its schema; the same SQL if no change is needed.

    The value was read with ``engine_tree(type_)``; the schema is ``connect_of(type_)``.
    ``depth`` is the number of enclosing lambdas.
    """
    one = type_.optional_part or type_.only_part
    if one is not None:
        return connected(sql, one, schema, depth)
    if type_.kind == "union":
        members = [f"{sql}.member{place}.x" for place in range(len(type_.branches))]
        return _struct(sql, type_.branches, schema, members, depth)
    if type_.kind == "record":
        members = [f"{sql}.{quote(field.name)}" for field in type_.fields]
        return _struct(sql, [f.type for f in type_.fields], schema, members, depth)
    if type_.is_entry:
        return _entries(sql, type_, schema, depth)
    if schema.value_schema is not None:
        return _items(sql, type_.parts[0], schema, depth)
    if type_.logical in _TIMES:
        return _TIMES[type_.logical].format(sql)
    small = _small(type_)
    return sql if small is None else f"try_cast({sql} AS {_SMALL[small]})"


def _small(type_: AvroType) -> str | None:
    """Return int8 or int16, which Avro does not have, if a number has that type."""
    small = type_.facts.get("connect.type")
    is_plain = type_.kind == "int" and type_.logical is None
    return small if is_plain and small in _SMALL else None


def overflowing(sql: str, type_: AvroType) -> Conditions:
    """Yield paths and conditions, never null, of numbers out of the range of int8 or int16.

    The arguments are those of `connected`, which returns null for such a number.
    """

    def wrong(own: str, part: AvroType) -> str | None:
        small = _small(part)
        if small is None:
            return None
        return f"coalesce({own} NOT BETWEEN {-_MOST[small] - 1} AND {_MOST[small]}, false)"

    return _inside(sql, type_, wrong, nulls=False)


def _struct(
    sql: str,
    types: list[AvroType] | tuple[AvroType, ...],
    schema: Schema,
    members: list[str],
    depth: int,
) -> str:
    pairs, changed = [], False
    for member, type_, field in zip(members, types, schema.fields, strict=True):
        value = connected(member, type_, field.schema, depth)
        changed = changed or value != f"{sql}.{quote(field.name)}"
        pairs.append(f"{literal(field.name)}, {value}")
    return f"IF({sql} IS NULL, NULL, named_struct({', '.join(pairs)}))" if changed else sql


def _items(sql: str, type_: AvroType, schema: Schema, depth: int) -> str:
    item = f"x{depth}"
    assert schema.value_schema is not None
    value = connected(item, type_, schema.value_schema, depth + 1)
    if value == item:
        return sql
    if schema.type is Type.MAP:
        return f"transform_values({sql}, (k{depth}, {item}) -> {value})"
    return f"transform({sql}, {item} -> {value})"


def _entries(sql: str, type_: AvroType, schema: Schema, depth: int) -> str:
    """Return SQL for a map from its entries; of entries with equal keys, the last one wins."""
    item, place = f"x{depth}", f"i{depth}"
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    key_type, value_type = (field.type for field in type_.parts[0].fields)
    key = connected(f"{item}.key", key_type, schema.key_schema, depth + 1)
    value = connected(f"{item}.value", value_type, schema.value_schema, depth + 1)
    rest = f"slice({sql}, {place} + 2, size({sql}))"
    last = f"NOT exists({rest}, later -> later.key = {item}.key)"
    good = (
        f"{item}.key IS NOT NULL AND (size(array_distinct({sql}.key)) = size({sql}) OR {last})"
    )
    filtered = f"filter({sql}, ({item}, {place}) -> {good})"
    pairs = f"transform({filtered}, {item} -> named_struct('key', {key}, 'value', {value}))"
    return f"map_from_entries({pairs})"


def fitted(sql: str, source: Schema, target: Schema, depth: int = 0) -> str:
    """Return SQL that converts a value to a wider schema.

    Missing fields get their default, as in Avro, or null.
    """
    if sql_type(source) == sql_type(target):
        return sql
    if target.type is Type.STRUCT and source.type is Type.STRUCT:
        known: Mapping[str, Schema] = {f.name: f.schema for f in source.fields}
        pairs = ", ".join(
            f"{literal(f.name)}, "
            + (
                fitted(f"{sql}.{quote(f.name)}", known[f.name], f.schema, depth)
                if f.name in known
                else absent(f.schema)
            )
            for f in target.fields
        )
        return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
    if source.key_schema is not None and target.key_schema is not None:
        return _fitted_map(sql, source, target, depth)
    if source.value_schema is not None and target.value_schema is not None:
        value = fitted(f"x{depth}", source.value_schema, target.value_schema, depth + 1)
        return f"transform({sql}, x{depth} -> {value})"
    return f"try_cast({sql} AS {sql_type(target)})"


def _fitted_map(sql: str, source: Schema, target: Schema, depth: int) -> str:
    entry = f"x{depth}"
    assert source.key_schema is not None
    assert source.value_schema is not None
    assert target.key_schema is not None
    assert target.value_schema is not None
    key = fitted(f"{entry}.key", source.key_schema, target.key_schema, depth + 1)
    value = fitted(f"{entry}.value", source.value_schema, target.value_schema, depth + 1)
    pair = f"named_struct('key', {key}, 'value', {value})"
    return f"map_from_entries(transform(map_entries({sql}), {entry} -> {pair}))"


def absent(schema: Schema) -> str:
    """Return SQL for a field that is missing in a value: its default, or null."""
    if schema.default is None:
        return sql_null(schema)
    return sql_value(schema, schema.default)
