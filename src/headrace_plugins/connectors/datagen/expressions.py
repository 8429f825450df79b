"""Makes rows as Spark SQL over row numbers: the same values as ``make_rows``, in the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import Schema
from headrace.sdk.sparktypes import to_ddl
from headrace.sdk.sqltext import literal
from headrace_plugins.connectors.datagen.plan import (
    DAYS,
    ITEMS,
    RANGES,
    STEP_MICROS,
    UNIT,
    decimal_sizes,
    kind,
    map_keys,
    part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace_plugins.connectors.datagen.plan import Plan

_MOST_SCALE = 15
"""Up to this scale the product of a number and a power of ten is an exact decimal."""


def value_sql(plan: Plan, row: str) -> str:
    """Return the SQL of one row as a struct.

    Args:
        plan: What to make.
        row: The name of a BIGINT column with the row's number.
    """
    pairs = (
        f"{literal(path)}, {_Column(plan, row, path).nullable(schema)}"
        for path, schema in plan.columns()
    )
    return f"named_struct({', '.join(pairs)})"


def chance_sql(plan: Plan, row: str, path: str) -> str:
    """Return the SQL of a number from 0 to below 1, drawn for each row."""
    return _unit(_Column(plan, row, path).hash())


def _unit(hash_sql: str) -> str:
    return f"CAST(shiftrightunsigned({hash_sql}, 11) AS DOUBLE) * {UNIT!r}D"


class _Column:
    def __init__(self, plan: Plan, row: str, path: str) -> None:
        self.plan = plan
        self.row = row
        self.path = path

    def nullable(self, schema: Schema) -> str:
        """Return the SQL of a column, null now and then where it may be."""
        if not (schema.optional and self.plan.nulls):
            return self.sql(schema)
        chance = chance_sql(self.plan, self.row, self.path + "?")
        return f"IF({chance} < {self.plan.nulls!r}D, NULL, {self.sql(schema)})"

    def sql(self, schema: Schema) -> str:
        sql = _MAKERS[kind(schema)](self, schema)
        # Makes the type nullable, as the schema says, where no value ever is null.
        return f"IF(false, NULL, {sql})" if schema.optional else sql

    def hash(self) -> str:
        return f"xxhash64({self.plan.salt(self.path)}L, {self.row})"

    def below(self, limit: int) -> str:
        return f"shiftrightunsigned({self.hash()}, 1) % {limit}L"

    def child(self, name: str) -> _Column:
        return _Column(self.plan, self.row, f"{self.path}.{name}")


def _whole(column: _Column, schema: Schema) -> str:
    if column.plan.is_row_number(column.path, schema):
        return column.row
    return f"CAST({column.below(RANGES[schema.type])} AS {_ddl(schema)})"


def _real(column: _Column, schema: Schema) -> str:
    return f"CAST({_unit(column.hash())} * 1000D AS {_ddl(schema)})"


def _boolean(column: _Column, _: Schema) -> str:
    return f"({column.hash()} & 1L) = 1L"


def _string(column: _Column, _: Schema) -> str:
    # With its highest bit set a number always has 16 digits.
    return f"substring(hex({column.hash()} | shiftleft(1L, 63)), 9, 8)"


def _binary(column: _Column, schema: Schema) -> str:
    return f"unhex({_string(column, schema)})"


def _decimal(column: _Column, schema: Schema) -> str:
    precision, scale, limit = decimal_sizes(schema)
    number = column.below(limit)
    if scale > _MOST_SCALE:
        return f"CAST(concat(CAST({number} AS STRING), 'E-{scale}') AS {_ddl(schema)})"
    unit = f"CAST('1E-{scale}' AS DECIMAL({scale + 1}, {scale}))"
    return f"CAST(CAST({number} AS DECIMAL(10, 0)) * {unit} AS DECIMAL({precision}, {scale}))"


def _date(column: _Column, _: Schema) -> str:
    days = f"CAST({column.below(DAYS)} + {column.plan.start_day}L AS INT)"
    return f"date_from_unix_date({days})"


def _timestamp(column: _Column, _: Schema) -> str:
    return f"timestamp_micros({column.row} * {STEP_MICROS}L + {column.plan.start_micros}L)"


def _struct(column: _Column, schema: Schema) -> str:
    pairs = (f"{literal(m.name)}, {column.child(m.name).sql(m.schema)}" for m in schema.fields)
    return f"named_struct({', '.join(pairs)})"


def _array(column: _Column, schema: Schema) -> str:
    return _slice(column, _slots(column, part(schema.value_schema)))


def _map(column: _Column, schema: Schema) -> str:
    kinds = _ddl(part(schema.key_schema))
    keys = [f"CAST('{key}' AS {kinds})" for key in map_keys(part(schema.key_schema)) or ()]
    values = _slots(column, part(schema.value_schema))
    return f"map_from_arrays({_slice(column, keys)}, {_slice(column, values)})"


def _slots(column: _Column, schema: Schema) -> list[str]:
    return [column.child(str(slot)).sql(schema) for slot in range(ITEMS)]


def _slice(column: _Column, slots: list[str]) -> str:
    return f"slice(array({', '.join(slots)}), 1, CAST({column.below(ITEMS + 1)} AS INT))"


def _ddl(schema: Schema) -> str:
    return to_ddl(Schema.struct({"x": schema.replaced(optional=True)})).removeprefix("`x` ")


_MAKERS: Mapping[str, Callable[[_Column, Schema], str]] = {
    "INT8": _whole,
    "INT16": _whole,
    "INT32": _whole,
    "INT64": _whole,
    "FLOAT32": _real,
    "FLOAT64": _real,
    "BOOLEAN": _boolean,
    "STRING": _string,
    "BYTES": _binary,
    "DECIMAL": _decimal,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "STRUCT": _struct,
    "ARRAY": _array,
    "MAP": _map,
}
