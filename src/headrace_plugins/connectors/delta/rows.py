"""From records to rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, Schema, Type
from headrace.sdk.sqltext import quote
from headrace_plugins.connectors.delta.types import moved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import SinkBatch
    from headrace_plugins.connectors.delta.fitting import Fit
    from headrace_plugins.connectors.delta.types import Json

__all__ = ["DELETED", "Columns", "columns_of", "key_names", "last_of_each_key"]

DELETED = "__headrace_deleted"
"""The column of staged rows that tells tombstones from rows."""
_POSITION = "__headrace_position"
_LAST = "__headrace_last"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a batch, before they are fitted to the table.

    Args:
        sources: For each column, its SQL over the record columns.
        kinds: For each column, its type as Spark's JSON.
    """

    sources: Mapping[str, str]
    kinds: Mapping[str, Json]

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as the fields of a StructType in Spark's JSON."""
        return [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in self.kinds.items()
        ]

    def select(self, fit: Fit) -> list[str]:
        """Return the SQL of the columns that are written, of the table's types and names."""
        return [
            f"{moved(self.sources[name], self.kinds[name], fit.type_of(to))} AS {quote(to)}"
            for name, to in fit.names.items()
        ]


def columns_of(frame: DataFrame, batch: SinkBatch, keys: Sequence[str] = ()) -> Columns:
    """Return the columns of a frame of records: the value's, and those of the key in ``keys``.

    A value that is no struct is one column, ``value``.
    """
    kinds = {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}
    of_value = _members("value", kinds["value"], batch.schema)
    of_key = {name: _key_sql(name, batch, kinds) for name in keys}
    plain = [name for name, (sql, _) in of_key.items() if sql == "key"]
    if len(plain) > 1:
        raise ConfigError(
            problem=f"The record's key is one plain value and cannot be {', '.join(plain)}.",
            fix="Name fields of the value, and at most one that stands for the key.",
            field="key.fields",
        )
    only_key = {name: source for name, source in of_key.items() if name not in of_value}
    # A tombstone has its key in the record's key only.
    sources = {**only_key, **of_value, **of_key}
    return Columns(
        {name: sql for name, (sql, _) in sources.items()},
        {name: kind for name, (_, kind) in sources.items()},
    )


def key_names(batch: SinkBatch, configured: Sequence[str]) -> list[str]:
    """Return the names of the key's columns.

    Raises:
        ConfigError: None are configured, and the record's key does not tell.
    """
    if configured:
        return list(configured)
    if batch.key_schema is None or batch.key_schema.type is not Type.STRUCT:
        problem = "The records have no key with fields to tell which rows they update."
        raise ConfigError(problem=problem, fix="Set key.fields.", field="key.fields")
    return [member.name for member in batch.key_schema.fields]


def last_of_each_key(
    frame: DataFrame, columns: Sequence[str], keys: Sequence[str]
) -> DataFrame:
    """Return the last record of each key, by position, as rows with the column ``DELETED``.

    Args:
        frame: The records.
        columns: SQL of the table's columns, named.
        keys: The names of the key's columns in the table.
    """
    rows = frame.selectExpr(*columns, f"value IS NULL AS {DELETED}", f"position AS {_POSITION}")
    quoted = [quote(name) for name in keys]
    rest = [quote(name) for name in rows.columns if name not in {*keys, _POSITION}]
    newest = f"max_by(struct({', '.join(rest)}), {_POSITION}) AS {_LAST}"
    return rows.groupBy(*quoted).agg(F.expr(newest)).selectExpr(*quoted, f"{_LAST}.*")


def _key_sql(name: str, batch: SinkBatch, kinds: Mapping[str, Json]) -> tuple[str, Json]:
    """Return the SQL and type of a key's column: the record's key has it, or else the value."""
    if batch.key_schema is not None:
        in_key = _members("key", kinds["key"], batch.key_schema)
        if name in in_key:
            return in_key[name]
        if batch.key_schema.type is not Type.STRUCT and name not in _names(batch.schema):
            return "key", kinds["key"]
    in_value = _members("value", kinds["value"], batch.schema)
    if name in in_value:
        return in_value[name]
    raise ConfigError(
        problem=f"Neither the key nor the value of the records has a field {name}.",
        fix=f"The value has: {', '.join(_names(batch.schema)) or 'no fields'}.",
        field="key.fields",
    )


def _members(column: str, kind: Json, schema: Schema) -> dict[str, tuple[str, Json]]:
    if schema.type is not Type.STRUCT or isinstance(kind, str):
        return {column: (column, kind)}
    return {f["name"]: (f"{column}.{quote(f['name'])}", f["type"]) for f in kind["fields"]}


def _names(schema: Schema) -> list[str]:
    return [member.name for member in schema.fields]
