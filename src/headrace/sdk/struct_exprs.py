"""SQL expressions for structs and variants, and the Java names of types."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.sdk.errors import ConfigError, RecordError, UnfitRecordError
from headrace.sdk.schema import DECIMAL, VARIANT, Schema, Type
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value

if TYPE_CHECKING:
    import pyarrow as pa


def is_variant(schema: Schema) -> bool:
    """Return whether values of a schema are variants."""
    return schema.is_logical and schema.name == VARIANT


def has_variant(schema: Schema) -> bool:
    """Return whether values of a schema are variants or contain variants."""
    return any(map(is_variant, schema.walk()))


def check_json(text: str, *, path: str = "") -> None:
    """Check that Spark can parse a text as a VARIANT.

    Raises RecordError: the text is not JSON, or an object in it has a duplicate name.
    """
    try:
        json.loads(text, parse_constant=_no_constant, object_pairs_hook=_each_once)
    except ValueError as error:
        raise RecordError(
            problem=f"Invalid JSON for a Variant: {error}",
            fix="Use valid JSON; put strings in double quotes.",
            field=path or None,
        ) from error


def check_variants(values: pa.Array, schema: Schema, *, path: str = "") -> None:
    """Check the JSON texts of all variants in values of a schema.

    Raises RecordError: the error of `check_json` for the first invalid text.
    """
    if not has_variant(schema):
        return
    if schema.type is Type.STRUCT:
        for field, part in zip(schema.fields, values.flatten(), strict=True):
            check_variants(part, field.schema, path=f"{path}.{field.name}".strip("."))
    elif schema.value_schema is not None:
        items = _items(values) if schema.type is Type.MAP else values.flatten()
        check_variants(items, schema.value_schema, path=path)
    else:
        for text in values.drop_null().to_pylist():
            check_json(text, path=path)


def _items(values: pa.MapArray) -> pa.Array:
    # `items` of a sliced array returns the items of the whole array.
    start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return values.items.slice(start, end - start)


def _no_constant(name: str) -> None:
    problem = f"{name} is not JSON"
    raise ValueError(problem)


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        problem = "duplicate name in an object"
        raise ValueError(problem)


def texts_of_variants(sql: str, schema: Schema) -> str:
    """Return the SQL for a frame's value with its variants, at any depth, as JSON texts."""
    return _sql(sql, schema, lambda part: f"to_json({part})", 0)


def variants_of_texts(sql: str, schema: Schema, *, strict: bool = True) -> str:
    """Return the SQL for a value with the JSON texts of its variants, at any depth, parsed.

    Invalid JSON fails if ``strict``, else it becomes null.
    """
    parse = "parse_json" if strict else "try_parse_json"
    return _sql(sql, schema, lambda part: f"{parse}({part})", 0)


def _sql(sql: str, schema: Schema, change: Callable[[str], str], depth: int) -> str:
    if not has_variant(schema):
        return sql
    if schema.type is Type.STRUCT:
        pairs = ", ".join(
            f"{literal(f.name)}, {_sql(f'{sql}.{quote(f.name)}', f.schema, change, depth)}"
            for f in schema.fields
        )
        return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
    if schema.value_schema is None:
        return change(sql)
    inner = _sql(f"x{depth}", schema.value_schema, change, depth + 1)
    if schema.type is Type.ARRAY:
        return f"transform({sql}, x{depth} -> {inner})"
    return f"transform_values({sql}, (k{depth}, x{depth}) -> {inner})"


_CLASSES: Mapping[Type, str] = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.INT64: "java.lang.Long",
    Type.FLOAT32: "java.lang.Float",
    Type.FLOAT64: "java.lang.Double",
    Type.BOOLEAN: "java.lang.Boolean",
    Type.STRING: "java.lang.String",
    Type.BYTES: "[B",
    Type.ARRAY: "java.util.ArrayList",
    Type.MAP: "java.util.HashMap",
    Type.STRUCT: "org.apache.kafka.connect.data.Struct",
}


def java_class(schema: Schema, *, schemaless: bool = False) -> str:
    """Return the name of the Java class of this schema's values in Kafka Connect.

    A `schemaless` value, which has no schema of its own, has the class that Kafka Connect's
    JSON converter returns: a map instead of a struct.
    """
    if schema.is_logical:
        return "java.math.BigDecimal" if schema.name == DECIMAL else "java.util.Date"
    if schemaless and schema.type is Type.STRUCT:
        return _CLASSES[Type.MAP]
    return _CLASSES[schema.type]


Column = tuple[str, Schema]
"""An SQL expression and the schema of its values."""
Columns = Mapping[str, Column]
"""The fields of a struct, in order."""
Change = Callable[[str, Schema], Column | None]
"""Returns a field's new expression and schema; None removes the field."""
Edit = Callable[[str, Column], tuple[str, Column] | None]
"""Returns a field's new name and column; None removes the field."""
Steps = tuple[str, ...]

_DUPLICATE = "org.apache.kafka.connect.errors.SchemaBuilderException"


def struct_sql(columns: Columns) -> str:
    """Return the SQL for a struct of these fields."""
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, (sql, _) in columns.items())
    return f"named_struct({pairs})"


def defaulted(column: Column) -> Column:
    """Return a column with its schema's default instead of null."""
    sql, schema = column
    if schema.default is None:
        return column
    return f"coalesce({sql}, {sql_value(schema, schema.default)})", schema


def member(column: Column, step: str, *, schemaless: bool) -> Column | None:
    """Return a member of a struct, or of a map without schema; None if there is none.

    Raises UnfitRecordError: the value has no members.
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
    """Return the fields after edits at paths below them; paths that do not exist are ignored.

    Raises UnfitRecordError: two fields have the same name afterwards, and have a schema.
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
    """Return a struct, or a map without schema, after edits below it; else the same column."""
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
    """Return only the fields at these paths, each within the structs that contain it."""
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
    """Return the edit that adds a field to a struct, or to a map without schema.

    The edit raises UnfitRecordError if the name is taken and the struct has a schema.
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
    """Return the error for a second field with the same name."""
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
    """Return a map after an edit of one of its entries."""
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
        problem=f"All values of a map have one type, here {values.type.value}; a value cannot "
        f"become {new.type.value}.",
        fix="Declare the map as a struct in the source's schema.",
    )
