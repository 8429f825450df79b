"""Edits of fields at any depth, as SQL text.

A struct that holds an edited field is built anew with ``named_struct``, and so is every
struct around it; one that is null stays null. A map stands for a struct only in values
that travel without a schema, as in Kafka Connect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.sdk.errors import ConfigError, UnfitRecordError
from headrace.sdk.javatypes import java_class
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value

__all__ = [
    "Change",
    "Column",
    "Columns",
    "Edit",
    "defaulted",
    "duplicate",
    "edited",
    "grown",
    "kept",
    "member",
    "rebuilt",
    "struct_sql",
]

Column = tuple[str, Schema]
"""An SQL expression and the schema of its values."""
Columns = Mapping[str, Column]
"""The fields of a struct, in order."""
Change = Callable[[str, Schema], Column | None]
"""Gives a field's new expression and schema; None removes the field."""
Edit = Callable[[str, Column], tuple[str, Column] | None]
"""Gives a field's new name and column; None removes the field."""
Steps = tuple[str, ...]

_DUPLICATE = "org.apache.kafka.connect.errors.SchemaBuilderException"


def struct_sql(columns: Columns) -> str:
    """Give the struct of these fields."""
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, (sql, _) in columns.items())
    return f"named_struct({pairs})"


def defaulted(column: Column) -> Column:
    """Give a column with its schema's default instead of null."""
    sql, schema = column
    if schema.default is None:
        return column
    return f"coalesce({sql}, {sql_value(schema, schema.default)})", schema


def member(column: Column, step: str, *, schemaless: bool) -> Column | None:
    """Give a member of a struct, or of a map without schema; None if there is none.

    Raises:
        UnfitRecordError: The value has no members.
    """
    sql, schema = column
    if schema.type is Type.STRUCT:
        found = schema.field(step)
        if found is None:
            return None
        optional = found.schema.optional or schema.optional
        return f"{sql}.{quote(step)}", found.schema.replaced(optional=optional)
    if not schemaless:
        raise UnfitRecordError(message="Cannot look up fields on non-struct type")
    values = _map_values(schema)
    if values is None:
        raise UnfitRecordError(
            message="Only Map objects supported in absence of schema for "
            f"[nested field access], found: {java_class(schema, schemaless=True)}",
            where=f"{sql} IS NOT NULL",
        )
    return f"try_element_at({sql}, {literal(step)})", values.replaced(optional=True)


def edited(
    columns: Columns, edits: Iterable[tuple[Steps, Edit]], *, schemaless: bool
) -> dict[str, Column]:
    """Give the fields after edits at paths below them; a path that leads nowhere does nothing.

    Raises:
        UnfitRecordError: Two fields have the same name afterwards, and have a schema.
    """
    mine, deeper = _sorted(edits)
    after: dict[str, Column] = {}
    for name, column in columns.items():
        below = deeper.get(name, ())
        inner = rebuilt(column, below, schemaless=schemaless) if below else column
        outcome: tuple[str, Column] | None = (name, inner)
        for edit in mine.get(name, ()):
            outcome = outcome and edit(*outcome)
        if outcome is None:
            continue
        new_name, new_column = outcome
        if new_name in after and not schemaless:
            raise duplicate(new_name)
        after[new_name] = new_column
    return after


def rebuilt(column: Column, edits: Sequence[tuple[Steps, Edit]], *, schemaless: bool) -> Column:
    """Give a struct, or a map without schema, after edits below it; else the same column."""
    sql, schema = column
    if schema.type is Type.STRUCT:
        fields = {f.name: (f"{sql}.{quote(f.name)}", f.schema) for f in schema.fields}
        return _struct(column, edited(fields, edits, schemaless=schemaless))
    if not schemaless or _map_values(schema) is None:
        return column
    mine, deeper = _sorted(edits)
    for name, below in deeper.items():
        mine[name].insert(0, _below(below))
    for name, own in mine.items():
        for edit in own:
            sql = _edited_entry(sql, schema, name, edit)
    return sql, schema


def kept(columns: Columns, paths: Iterable[Steps], *, schemaless: bool) -> dict[str, Column]:
    """Give only the fields at these paths, each within the structs that hold it."""
    below: dict[str, list[Steps]] = defaultdict(list)
    for steps in paths:
        below[steps[0]].append(steps[1:])
    after = {}
    for name, column in columns.items():
        rests = below.get(name)
        if rests is None:
            continue
        found = column if () in rests else _kept(column, rests, schemaless=schemaless)
        if found is not None:
            after[name] = found
    return after


def grown(
    name: str, added: Column, *, schemaless: bool
) -> Callable[[str, Column], tuple[str, Column]]:
    """Give the edit that adds a field to a struct, or to a map without schema.

    Raises:
        UnfitRecordError: By the edit, when the name is taken and the struct has a schema.
    """

    def edit(own_name: str, column: Column) -> tuple[str, Column]:
        sql, schema = column
        if schema.type is Type.STRUCT:
            fields = {f.name: (f"{sql}.{quote(f.name)}", f.schema) for f in schema.fields}
            if name in fields and not schemaless:
                raise duplicate(name)
            return own_name, _struct(column, {**fields, name: added})
        values = _map_values(schema)
        if not schemaless or values is None:
            raise UnfitRecordError(message="Cannot look up fields on non-struct type")
        _check_same(values, added[1])
        entry = f"map({literal(name)}, {added[0]})"
        return own_name, (f"map_concat({_without(sql, name)}, {entry})", schema)

    return edit


def duplicate(name: str) -> UnfitRecordError:
    """Give the error for a second field of the same name."""
    message = f"Cannot create field because of field name duplication {name}"
    return UnfitRecordError(message=message, exception=_DUPLICATE)


def _sorted(
    edits: Iterable[tuple[Steps, Edit]],
) -> tuple[dict[str, list[Edit]], dict[str, list[tuple[Steps, Edit]]]]:
    mine: dict[str, list[Edit]] = defaultdict(list)
    deeper: dict[str, list[tuple[Steps, Edit]]] = defaultdict(list)
    for steps, edit in edits:
        if len(steps) == 1:
            mine[steps[0]].append(edit)
        else:
            deeper[steps[0]].append((steps[1:], edit))
    return mine, deeper


def _struct(column: Column, fields: Columns) -> Column:
    sql, schema = column
    built = struct_sql(fields)
    if schema.optional:
        built = f"IF({sql} IS NULL, NULL, {built})"
    return built, schema.with_fields({name: field for name, (_, field) in fields.items()})


def _kept(column: Column, paths: Sequence[Steps], *, schemaless: bool) -> Column | None:
    sql, schema = column
    if schema.type is Type.STRUCT:
        fields = {f.name: (f"{sql}.{quote(f.name)}", f.schema) for f in schema.fields}
        return _struct(column, kept(fields, paths, schemaless=schemaless))
    if not schemaless or _map_values(schema) is None:
        return None
    names = ", ".join(literal(steps[0]) for steps in paths)
    return f"map_filter({sql}, (__name, __item) -> __name IN ({names}))", schema


def _map_values(schema: Schema) -> Schema | None:
    keys = schema.key_schema
    return schema.value_schema if keys is not None and keys.type is Type.STRING else None


def _below(edits: Sequence[tuple[Steps, Edit]]) -> Edit:
    return lambda name, column: (name, rebuilt(column, edits, schemaless=True))


def _edited_entry(sql: str, schema: Schema, name: str, edit: Edit) -> str:
    """Give a map after an edit of one of its entries."""
    values = _map_values(schema)
    assert values is not None
    outcome = edit(name, ("__item", values.replaced(optional=True)))
    if outcome is None:
        return _without(sql, name)
    new_name, (item, item_schema) = outcome
    _check_same(values, item_schema)
    if new_name == name:
        choice = f"IF(__name = {literal(name)}, {item}, __item)"
        return f"transform_values({sql}, (__name, __item) -> {choice})"
    one = f"map_filter({sql}, (__name, __item) -> __name = {literal(name)})"
    renamed = f"transform_keys({one}, (__name, __item) -> {literal(new_name)})"
    rest = _without(_without(sql, name), new_name)
    present = f"map_contains_key({sql}, {literal(name)})"
    return f"IF({present}, map_concat({rest}, {renamed}), {sql})"


def _without(sql: str, name: str) -> str:
    return f"map_filter({sql}, (__name, __item) -> __name <> {literal(name)})"


def _check_same(values: Schema, new: Schema) -> None:
    if sql_type(values) == sql_type(new):
        return
    raise ConfigError(
        problem=f"The map's values are of type {values.type.value}: one of them cannot be "
        f"of type {new.type.value}.",
        fix="Declare the map as a struct in the source's schema.",
    )
