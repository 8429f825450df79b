"""Spark SQL that computes rows from row numbers: the same values as ``make_rows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.sqltext import literal, sql_type
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
    from headrace.sdk import Schema
    from headrace_plugins.connectors.datagen.plan import Plan

_MOST_SCALE = 15
"""Up to this scale the product of a number and a power of ten is an exact decimal."""


def value_sql(plan: Plan, row: str) -> str:
    """Return the SQL of one row as a struct; ``row`` is a BIGINT column with its number."""
    pairs = (
        f"{literal(path)}, {_Column(plan, row, path).nullable(schema)}"
        for path, schema in plan.columns()
    )
    return f"named_struct({', '.join(pairs)})"


def chance_sql(plan: Plan, row: str, path: str) -> str:
    """Return the SQL of a pseudorandom number in [0, 1) for each row."""
    return _unit(_Column(plan, row, path).hash())


def _unit(hash_sql: str) -> str:
    return f"CAST(shiftrightunsigned({hash_sql}, 11) AS DOUBLE) * {UNIT!r}D"


class _Column:
    """A column, or a slot of a nested column; one method for each kind of value."""

    def __init__(self, plan: Plan, row: str, path: str) -> None:
        self.plan = plan
        self.row = row
        self.path = path

    def nullable(self, schema: Schema) -> str:
        """Return the SQL of a column, with some nulls if it is nullable."""
        if not (schema.optional and self.plan.nulls):
            return self.sql(schema)
        chance = chance_sql(self.plan, self.row, self.path + "?")
        return f"IF({chance} < {self.plan.nulls!r}D, NULL, {self.sql(schema)})"

    def sql(self, schema: Schema) -> str:
        sql = getattr(self, kind(schema))(schema)
        # Makes the type nullable as in the schema, although no value is null.
        return f"IF(false, NULL, {sql})" if schema.optional else str(sql)

    def hash(self) -> str:
        return f"xxhash64({self.plan.salt(self.path)}L, {self.row})"

    def below(self, limit: int) -> str:
        return f"shiftrightunsigned({self.hash()}, 1) % {limit}L"

    def child(self, name: str, schema: Schema) -> str:
        return _Column(self.plan, self.row, f"{self.path}.{name}").sql(schema)

    def whole(self, schema: Schema) -> str:
        if self.plan.is_row_number(self.path, schema):
            return self.row
        return f"CAST({self.below(RANGES[schema.type])} AS {sql_type(schema)})"

    def real(self, schema: Schema) -> str:
        return f"CAST({_unit(self.hash())} * 1000D AS {sql_type(schema)})"

    def boolean(self, _: Schema) -> str:
        return f"({self.hash()} & 1L) = 1L"

    def string(self, _: Schema) -> str:
        # With the highest bit set, hex() always returns 16 digits.
        return f"substring(hex({self.hash()} | shiftleft(1L, 63)), 9, 8)"

    def bytes(self, schema: Schema) -> str:
        return f"unhex({self.string(schema)})"

    def decimal(self, schema: Schema) -> str:
        precision, scale, limit = decimal_sizes(schema)
        number = self.below(limit)
        if scale > _MOST_SCALE:
            return f"CAST(concat(CAST({number} AS STRING), 'E-{scale}') AS {sql_type(schema)})"
        unit = f"CAST('1E-{scale}' AS DECIMAL({scale + 1}, {scale}))"
        return (
            f"CAST(CAST({number} AS DECIMAL(10, 0)) * {unit} AS DECIMAL({precision}, {scale}))"
        )

    def date(self, _: Schema) -> str:
        days = f"CAST({self.below(DAYS)} + {self.plan.start_day}L AS INT)"
        return f"date_from_unix_date({days})"

    def timestamp(self, _: Schema) -> str:
        return f"timestamp_micros({self.row} * {STEP_MICROS}L + {self.plan.start_micros}L)"

    def struct(self, schema: Schema) -> str:
        pairs = (f"{literal(m.name)}, {self.child(m.name, m.schema)}" for m in schema.fields)
        return f"named_struct({', '.join(pairs)})"

    def array(self, schema: Schema) -> str:
        items = part(schema.value_schema)
        return self._slice([self.child(str(slot), items) for slot in range(ITEMS)])

    def map(self, schema: Schema) -> str:
        kinds = sql_type(part(schema.key_schema))
        keys = [f"CAST('{key}' AS {kinds})" for key in map_keys(part(schema.key_schema)) or ()]
        return f"map_from_arrays({self._slice(keys)}, {self.array(schema)})"

    def _slice(self, slots: list[str]) -> str:
        return f"slice(array({', '.join(slots)}), 1, CAST({self.below(ITEMS + 1)} AS INT))"
