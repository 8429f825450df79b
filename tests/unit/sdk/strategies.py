"""Generated schemas and values for the SDK's tests."""

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from headrace.sdk.frozen import freeze
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    precision_of,
    scale_of,
)
from headrace.sdk.struct import Struct

TEXTS = st.text(max_size=6)
NAMES = st.text(min_size=1, max_size=6)
FLOATS32 = st.floats(width=32)

PLAIN_VALUES: Mapping[Type, st.SearchStrategy[Any]] = {
    Type.INT8: st.integers(-(2**7), 2**7 - 1),
    Type.INT16: st.integers(-(2**15), 2**15 - 1),
    Type.INT32: st.integers(-(2**31), 2**31 - 1),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT32: FLOATS32,
    Type.FLOAT64: st.floats(),
    Type.BOOLEAN: st.booleans(),
    Type.STRING: TEXTS,
    Type.BYTES: st.binary(max_size=6),
}


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that fit a schema, null included where it is optional."""
    required = _required_values(schema)
    return st.none() | required if schema.optional else required


def _required_values(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.is_logical:
        return _logical_values(schema)
    if schema.type is Type.STRUCT:
        fields = {field.name: values(field.schema) for field in schema.fields}
        return st.fixed_dictionaries(fields).map(lambda given: _struct(schema, given))
    if schema.value_schema is None:
        return PLAIN_VALUES[schema.type]
    items = values(schema.value_schema)
    if schema.key_schema is None:
        return st.lists(items, max_size=3)
    return st.dictionaries(values(schema.key_schema).map(freeze), items, max_size=3)


def _struct(schema: Schema, given: Mapping[str, Any]) -> Struct:
    return Struct(schema, {name: value for name, value in given.items() if value is not None})


def _logical_values(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.name == DECIMAL:
        digits = precision_of(schema.parameters) or 38
        scale = scale_of(schema.parameters) or 0
        whole = st.integers(-(10**digits) + 1, 10**digits - 1)
        return whole.map(lambda number: Decimal((int(number < 0), _digits(number), -scale)))
    return {
        DATE: st.dates(),
        TIME: st.times(),
        TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    }[str(schema.name)]


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


@st.composite
def decimals(draw: st.DrawFn) -> Schema:
    """Decimal schemas with and without a precision."""
    precision = draw(st.none() | st.integers(1, 38))
    scale = draw(st.integers(0, precision or 38))
    return Schema.decimal(scale, precision=precision)


SCALARS = (
    st.sampled_from([Schema(kind) for kind in PLAIN_VALUES])
    | st.sampled_from([Schema.date(), Schema.time(), Schema.timestamp()])
    | decimals()
)


@st.composite
def attributed(draw: st.DrawFn, bare: st.SearchStrategy[Schema]) -> Schema:
    """Schemas with some of the attributes that any schema may have."""
    schema = draw(bare)
    schema = schema.replaced(
        optional=draw(st.booleans()),
        doc=draw(st.none() | TEXTS),
        version=draw(st.just(schema.version) | st.integers(1, 9)),
        parameters={**draw(st.dictionaries(TEXTS, TEXTS, max_size=2)), **schema.parameters},
    )
    if not schema.is_logical:
        schema = schema.replaced(name=draw(st.none() | TEXTS))
    return schema.replaced(default=draw(st.none() | _required_values(schema)))


def structs(items: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Structs without attributes, of up to three fields."""
    return st.dictionaries(NAMES, items, min_size=1, max_size=3).map(Schema.struct)


def _deeper(items: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    keys = attributed(SCALARS)
    return attributed(st.builds(Schema.array, items) | st.builds(Schema.map, keys, items)) | (
        attributed(structs(items))
    )


LEVEL_1 = attributed(SCALARS)
LEVEL_2 = LEVEL_1 | _deeper(LEVEL_1)
SCHEMAS = LEVEL_2 | _deeper(LEVEL_2)
"""Schemas of all types, nested up to three levels."""
ROWS = attributed(structs(SCHEMAS))
"""Schemas of rows."""
