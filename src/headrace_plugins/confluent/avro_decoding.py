"""SQL that reads Avro by Spark's ``from_avro``, and gives values the types of a schema.

Of what it cannot read, Spark makes null; or, where the value is a struct, one of nulls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sdk import Type
from headrace.sdk.sqltext import literal, quote, sql_null, sql_type, sql_value
from headrace_plugins.confluent.avro_types import AvroType, engine_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.sdk import Schema
    from headrace_plugins.confluent.avro_framing import Written


_LOOKED_AT = 16  # so many fields are asked for one that is not null


@dataclass(frozen=True)
class Reading:
    """How values of one schema are read into a column.

    Most are read as they are. To have each in a field of a record makes ``from_avro`` take
    three times as long; so is read what would be null for a good value and a bad one.

    Args:
        written: The schema; no text that says what is wrong with it.
    """

    written: Written

    @property
    def sql(self) -> str:
        """What reads the values whose condition is true."""
        if self._is_within:
            return self._within()
        return _from_avro(self.written.body, engine_tree(self._type))

    def value(self, column: str) -> str:
        """Return SQL for the value in the column."""
        return f"{column}.v" if self._is_within else column

    def ok(self, column: str) -> str:
        """Return the condition under which the column has a value; it is never null."""
        if self._is_within:
            return f"({column}.ok IS NOT NULL)"
        for field in self._type.fields:
            if not field.type.is_nullable:
                return f"({column}.{quote(field.name)} IS NOT NULL)"
        if self._type.kind != "record":
            return f"({column} IS NOT NULL)"
        # All fields of a good value may be null. Only such are read again: Spark evaluates
        # what comes later in a coalesce when it has to.
        names = [quote(field.name) for field in self._type.fields[:_LOOKED_AT]]
        told = ", ".join(f"IF({column}.{name} IS NULL, NULL, true)" for name in names)
        return f"({column} IS NOT NULL AND coalesce({told}, {self._within()}.ok) IS NOT NULL)"

    @property
    def _type(self) -> AvroType:
        assert isinstance(self.written.type, AvroType)
        return self.written.type

    @property
    def _is_within(self) -> bool:
        # A union may hold null, and Spark cannot read one of records that has none around.
        is_empty = self._type.kind == "record" and not self._type.fields
        return any(self.written.around) or self._type.kind == "union" or is_empty

    def _within(self) -> str:
        """Return SQL for a struct of ``v`` and ``ok``, which is null for bad values.

        A record around the value is read as another, which has a field more, with a default.
        """
        value = {"name": "v", "type": engine_tree(self._type)}
        before, after = self.written.around
        ok = {"name": "ok", "type": "boolean", "default": True}
        own = {"type": "record", "name": "W", "fields": [*before, value, *after]}
        wanted = {"type": "record", "name": "W", "fields": [value, ok]}
        return _from_avro(self.written.body, own, wanted)


def _from_avro(body: str, own: Any, wanted: Any = None) -> str:
    options = "'mode', 'PERMISSIVE'"
    if wanted is not None:
        options += f", 'avroSchema', {literal(json.dumps(wanted))}"
    return f"from_avro({body}, {literal(json.dumps(own))}, map({options}))"


_SMALL = {"int8": "TINYINT", "int16": "SMALLINT"}
_MOST = {"int8": (1 << 7) - 1, "int16": (1 << 15) - 1}
_TIMES = {"time-millis": "CAST({} AS BIGINT) * 1000"}


def connected(sql: str, type_: AvroType, schema: Schema, depth: int = 0) -> str:
    """Return SQL for a value as its schema has it; the same SQL where it has it already.

    Args:
        sql: What Spark reads by ``engine_tree(type_)``.
        type_: The Avro type.
        schema: What ``connect_of(type_)`` gives.
        depth: How many lambdas there are around it.
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
    """Return which of the types that Avro has no word for a number is of."""
    kept = type_.facts.get("connect.type")
    is_plain = type_.kind == "int" and type_.logical is None
    return kept if is_plain and kept in _SMALL else None


def overflowing(
    sql: str, type_: AvroType, path: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield when a number is more than its small type holds: where, and never null SQL.

    The arguments are those of `connected`, which makes null of such a number.
    """
    one = type_.optional_part or type_.only_part
    if one is not None:
        yield from overflowing(sql, one, path, depth)
    for place, part in enumerate(type_.branches if type_.kind == "union" and not one else ()):
        yield from overflowing(f"{sql}.member{place}.x", part, path, depth)
    for field in type_.fields:
        where = f"{path}.{field.name}".strip(".")
        yield from overflowing(f"{sql}.{quote(field.name)}", field.type, where, depth)
    if type_.kind in {"array", "map"}:
        item = f"x{depth}"
        items = f"map_values({sql})" if type_.kind == "map" else sql
        for where, condition in overflowing(item, type_.parts[0], f"{path} item", depth + 1):
            yield where, f"coalesce(exists({items}, {item} -> {condition}), false)"
    if (small := _small(type_)) is not None:
        most = _MOST[small]
        yield path, f"coalesce({sql} NOT BETWEEN {-most - 1} AND {most}, false)"


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
    """Return a map of its entries, the last of those with one key."""
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
    kept = f"filter({sql}, ({item}, {place}) -> {good})"
    pairs = f"transform({kept}, {item} -> named_struct('key', {key}, 'value', {value}))"
    return f"map_from_entries({pairs})"


def fitted(sql: str, source: Schema, target: Schema, depth: int = 0) -> str:
    """Return SQL for a value of one schema as another has it, which holds more.

    Fields that the value lacks have their default, as in Avro, or are null.
    """
    if sql_type(source) == sql_type(target):
        return sql
    if target.type is Type.STRUCT and source.type is Type.STRUCT:
        given: Mapping[str, Schema] = {f.name: f.schema for f in source.fields}
        pairs = ", ".join(
            f"{literal(f.name)}, "
            + (
                fitted(f"{sql}.{quote(f.name)}", given[f.name], f.schema, depth)
                if f.name in given
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
    """Return SQL for a field that a value lacks."""
    if schema.default is None:
        return sql_null(schema)
    return sql_value(schema, schema.default)
