"""Infers the types of columns from samples of text.

Types are Arrow's until the end, as those can say that nothing is known of a column yet.
"""

from __future__ import annotations

import io
import json
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from headrace.sdk import ConfigError, Schema
from headrace.sdk.arrow import from_arrow, to_arrow_field
from headrace.sdk.schema_evolution import evolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace_plugins.connectors.file.dialect import Dialect

__all__ = ["TEXT", "VARIANT", "grown", "infer_csv", "infer_json", "merge_types", "to_schema"]

TEXT = pa.string()
VARIANT = pa.large_binary()
"""Stands for VARIANT, which Arrow does not know; no inferred type is it otherwise."""
_Merge: TypeAlias = "Callable[[pa.DataType, pa.DataType], pa.DataType]"
# Arrow reads these as numbers and Spark does not, or a number would lose them.
_NO_NUMBER = r"^[+-]?0[0-9]|^\+|^(?i:[+-]?(?:nan|inf|infinity))$"


def infer_csv(sample: bytes, dialect: Dialect) -> pa.StructType:
    """Return the columns of CSV; lines that do not fit the others are left out.

    Whole numbers with leading zeros, such as postcodes, stay texts.

    Raises:
        ConfigError: Two columns have the same name.
    """
    if not sample.strip():
        return pa.struct([])
    table = _csv(sample, dialect, dialect.arrow_convert())
    names = _csv_names(table.column_names, dialect)
    types = dict(zip(names, table.schema.types, strict=True))
    if len(types) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            problem=f"Two columns of the CSV files are called {twice!r}.",
            fix="Mend the header, or set header to false and declare a schema.",
            field="schema",
        )
    return pa.struct(list(_checked(types, names, table.column_names, sample, dialect).items()))


def infer_json(sample: bytes, dialect: Dialect, conflict: pa.DataType = TEXT) -> pa.StructType:
    """Return the fields of JSON objects, one a line, or in one document if multiline.

    Values of one field that share no shape give ``conflict``.

    A text stays a text, even if it looks like a time: JSON says what is what.
    """
    if not sample.strip():
        return pa.struct([])
    if not dialect.multiline:
        try:
            read = pa_json.ReadOptions(block_size=len(sample) + 1, use_threads=False)
            parse = pa_json.ParseOptions(newlines_in_values=False)
            table = pa_json.read_json(io.BytesIO(sample), read, parse)
            return _timeless(pa.struct(list(table.schema)))
        except pa.ArrowInvalid:
            # A line is malformed, or a field has several types: look at each line.
            pass
    merge = partial(merge_types, conflict=conflict)
    types = (_type_of(row, merge) for row in _json_rows(sample, multiline=dialect.multiline))
    merged = reduce(merge, types, pa.struct([]))
    return merged if pa.types.is_struct(merged) else pa.struct([])


def merge_types(
    old: pa.DataType, new: pa.DataType, conflict: pa.DataType = TEXT
) -> pa.DataType:
    """Return a type for the values of both; ``conflict`` when they share no shape."""
    if old.equals(new) or pa.types.is_null(new):
        return old
    if pa.types.is_null(old):
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        types = {old.field(i).name: old.field(i).type for i in range(old.num_fields)}
        for field in (new.field(i) for i in range(new.num_fields)):
            types[field.name] = merge_types(
                types.get(field.name, pa.null()), field.type, conflict
            )
        return pa.struct(list(types.items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merge_types(old.value_type, new.value_type, conflict))
    return _wider(old, new, conflict)


def to_schema(types: pa.StructType) -> Schema:
    """Return the schema of rows of these types; everything may be null."""
    return from_arrow(pa.schema([_settled_field(f) for f in _fields(types)]))


def grown(known: Schema, new: Schema) -> Schema:
    """Return ``known`` with what ``new`` adds.

    Types are widened where the SDK can; where there is no common type the known one stays,
    and values that do not fit it are rejected one by one.
    """
    fields = {field.name: field.schema for field in known.fields}
    for field in new.fields:
        before = fields.get(field.name)
        try:
            # A column does not become a VARIANT later: its target could not follow.
            if before is not None and field.schema.name == Schema.variant().name:
                continue
            optional = field.schema.replaced(optional=True)
            fields[field.name] = optional if before is None else evolve(before, optional)
        except ConfigError:
            continue
    return known.with_fields(fields)


def _csv(sample: bytes, dialect: Dialect, convert: pa_csv.ConvertOptions) -> pa.Table:
    read = pa_csv.ReadOptions(
        autogenerate_column_names=not dialect.header,
        block_size=len(sample) + 1,
        use_threads=False,
    )
    parse = dialect.arrow_parse(invalid_row_handler=lambda _: "skip")
    return pa_csv.read_csv(io.BytesIO(sample), read, parse, convert)


def _csv_names(names: Sequence[str], dialect: Dialect) -> list[str]:
    if dialect.header:
        return [name or f"_c{number}" for number, name in enumerate(names)]
    return [f"_c{number}" for number in range(len(names))]


def _checked(
    types: dict[str, pa.DataType],
    names: Sequence[str],
    arrow_names: Sequence[str],
    sample: bytes,
    dialect: Dialect,
) -> dict[str, pa.DataType]:
    """Take back guesses of Arrow's that lose something, and tell dates from times."""
    texts = dialect.arrow_convert(column_types=dict.fromkeys(arrow_names, pa.string()))
    numbers = [n for n, t in types.items() if pa.types.is_integer(t) or pa.types.is_floating(t)]
    if numbers:
        table = _csv(sample, dialect, texts).rename_columns(list(names))
        for name in numbers:
            odd = pc.match_substring_regex(table.column(name), _NO_NUMBER)
            if pc.any(odd).as_py():
                types[name] = pa.string()
    if dialect.date_format:
        only_dates = dialect.arrow_convert()
        only_dates.timestamp_parsers = dialect.arrow_times()[-2:-1]
        found = _csv(sample, dialect, only_dates).schema.types
        for name, arrow in zip(names, found, strict=True):
            if pa.types.is_timestamp(arrow):
                types[name] = pa.date32()
    return types


def _json_rows(sample: bytes, *, multiline: bool) -> Iterable[Any]:
    if multiline:
        document = json.loads(sample)
        return document if isinstance(document, list) else [document]
    return (row for row in map(_json_line, sample.splitlines()) if isinstance(row, dict))


def _json_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _type_of(value: Any, merge: _Merge) -> pa.DataType:
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else pa.float64()
        case float():
            return pa.float64()
        case dict():
            return pa.struct([(name, _type_of(item, merge)) for name, item in value.items()])
        case list():
            items = (_type_of(item, merge) for item in value)
            return pa.list_(reduce(merge, items, pa.null()))
        case _:
            return pa.string()


def _wider(old: pa.DataType, new: pa.DataType, conflict: pa.DataType) -> pa.DataType:
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in (old, new)):
        return pa.float64()
    if all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in (old, new)):
        return pa.timestamp("us", "UTC")
    return conflict


def _timeless(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(arrow):
        return pa.string()
    if pa.types.is_struct(arrow):
        return pa.struct([(f.name, _timeless(f.type)) for f in _fields(arrow)])
    if pa.types.is_list(arrow):
        return pa.list_(_timeless(arrow.value_type))
    return arrow


def _settled_field(field: pa.Field) -> pa.Field:
    if field.type.equals(VARIANT):
        return to_arrow_field(field.name, Schema.variant(optional=True))
    return pa.field(field.name, _settled(field.type))


def _settled(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return pa.struct([_settled_field(f) for f in _fields(arrow)])
    if pa.types.is_list(arrow):
        return pa.list_(_settled_field(arrow.value_field))
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", "UTC")
    kept = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_date)
    # What is unknown, and an object without fields, is a text that takes anything.
    return arrow if any(test(arrow) for test in kept) else pa.string()


def _fields(arrow: pa.StructType) -> list[pa.Field]:
    return [arrow.field(number) for number in range(arrow.num_fields)]
