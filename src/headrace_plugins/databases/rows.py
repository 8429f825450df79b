"""Converts the records of a batch to rows of a table: columns, keys and operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, Schema, SinkBatch, Type
from headrace.sdk.schema import COLUMN_TYPE, VARIANT, primary_key
from headrace.sdk.sink import RECORD_ID
from headrace.sdk.sqltext import JSON_OPTIONS, quote, selected
from headrace_plugins.databases.sink_settings import Contract
from headrace_plugins.databases.staging import DELETE, OP, PLACE, RECORD, TRUNCATE, UPSERT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace_plugins.databases.catalog import Table

_CHANGE = {"before", "after", "op"}
_POSITION = "__position"
_LAST = "__last"


@dataclass(frozen=True, kw_only=True)
class RecordRows:
    """The conversion of a batch's records to rows.

    Args:
        schema: The schema of a row.
        fields: SQL of each column over the frame of ``write``; over ``row`` for changes.
        keys: The columns that identify a row.
        key_fields: SQL of the keys for a tombstone, by name.
        is_change: Whether the records are changes.
        is_renamed: Whether column names differ from field names.
    """

    schema: Schema
    fields: Mapping[str, str]
    keys: tuple[str, ...]
    key_fields: Mapping[str, str]
    is_change: bool
    is_renamed: bool = False

    def renamed(self, names: Mapping[str, str]) -> RecordRows:
        """Return the conversion with renamed columns.

        Raises ConfigError if two fields map to the same column.
        """
        if all(old == new for old, new in names.items()):
            return self
        twice = [old for old, new in names.items() if list(names.values()).count(new) > 1]
        if twice:
            raise ConfigError(
                problem=f"The fields {' and '.join(twice)} map to the same table column.",
                fix="Drop or rename one of them with a transform.",
                field=twice[0],
            )
        return replace(
            self,
            schema=self.schema.with_fields(
                {names[f.name]: f.schema for f in self.schema.fields}
            ),
            fields={names[name]: sql for name, sql in self.fields.items()},
            keys=tuple(names[name] for name in self.keys),
            key_fields={names[name]: sql for name, sql in self.key_fields.items()},
            is_renamed=True,
        )

    def only(self, names: Iterable[str]) -> RecordRows:
        """Return the conversion with only some columns."""
        chosen = set(names)
        schemas = {f.name: f.schema for f in self.schema.fields if f.name in chosen}
        fields = {name: sql for name, sql in self.fields.items() if name in chosen}
        return replace(self, schema=self.schema.with_fields(schemas), fields=fields)

    @property
    def is_flat(self) -> bool:
        """Whether the columns of Arrow rows can be loaded unchanged."""
        plain = all(not _is_json(f.schema) for f in self.schema.fields)
        return plain and not self.is_change and not self.is_renamed

    def staged_schema(self) -> dict[str, Schema]:
        """Return the schemas of the columns for loading; nested values are JSON."""
        return {
            f.name: _json_text(f.schema) if _is_json(f.schema) else f.schema
            for f in self.schema.fields
        }

    def value_sql(self, name: str) -> str:
        """Return the SQL of a column's value over the frame of ``write``; may be null."""
        sql = self.fields[name]
        return f"value.after{sql.removeprefix('row')}" if self.is_change else sql

    def plain(self, frame: DataFrame) -> DataFrame:
        """Return one row per record."""
        columns = [f"{self._sql(name)} AS {quote(name)}" for name in self.fields]
        return selected(frame, [*columns, *_record(frame)])

    def merged(self, frame: DataFrame) -> DataFrame:
        """Return the last row of each key, with the operation column ``OP``.

        A change of a key deletes the row of the old key; a truncation is a row without a key.
        """
        rows = self._changes(frame) if self.is_change else self._rows(frame)
        keys = [quote(key) for key in self.keys]
        rest = [quote(name) for name in rows.columns if name not in {*self.keys, _POSITION}]
        newest = f"max_by(struct({', '.join(rest)}), {_POSITION}) AS {_LAST}"
        return rows.groupBy(*keys).agg(F.expr(newest)).selectExpr(*keys, f"{_LAST}.*")

    def _rows(self, frame: DataFrame) -> DataFrame:
        columns = []
        for name in self.fields:
            sql = self._sql(name)
            if name in self.key_fields and self.key_fields[name] != self.fields[name]:
                sql = f"IF(value IS NULL, {self.key_fields[name]}, {sql})"
            columns.append(f"{sql} AS {quote(name)}")
        op = f"IF(value IS NULL, '{DELETE}', '{UPSERT}') AS {OP}"
        return selected(frame, [*columns, *_record(frame), op, f"position AS {_POSITION}"])

    def _changes(self, frame: DataFrame) -> DataFrame:
        moved = " OR ".join(
            f"NOT (value.before.{quote(key)} <=> value.after.{quote(key)})" for key in self.keys
        )
        gone = "value.before IS NOT NULL AND (value.op = 'd' OR value.after IS NULL"
        gone = f"{gone} OR {moved})"
        none = "IF(true, NULL, value.after)"  # a typed null: rows may have fewer columns
        steps = (
            f"IF(value.op = '{TRUNCATE}', struct('{TRUNCATE}' AS op, {none} AS row), NULL)",
            f"IF({gone}, struct('{DELETE}' AS op, value.before AS row), NULL)",
            f"IF(value.after IS NOT NULL, struct('{UPSERT}' AS op, value.after AS row), NULL)",
        )
        pairs = f"array({', '.join(steps)})"
        more = [name for name in (RECORD_ID,) if name in frame.columns]
        both = frame.selectExpr(
            f"posexplode(filter({pairs}, x -> x IS NOT NULL)) AS (step, change)",
            *more,
            "position",
        )
        both = both.selectExpr("step", "change.op", "change.row AS row", *more, "position")
        columns = [f"{self._sql(name)} AS {quote(name)}" for name in self.fields]
        both = both.withColumn(
            _POSITION, F.expr("concat(position, array(CAST(step AS BIGINT)))")
        )
        digits = f"transform({_POSITION}, x -> lpad(hex(x), 16, '0'))"
        own = [f"op AS {OP}", f"concat_ws('.', {digits}) AS {PLACE}", _POSITION]
        return both.selectExpr(*columns, *_record(both), *own)

    def _sql(self, name: str) -> str:
        field = self.schema.field(name)
        assert field is not None
        sql = self.fields[name]
        if not _is_json(field.schema):
            return sql
        return f"to_json({sql}, {JSON_OPTIONS})"


def record_rows(
    batch: SinkBatch, configured: Sequence[str], contract: Contract, table: Table | None
) -> RecordRows:
    """Return the conversion of a batch's records to rows.

    Raises ConfigError if a key field is in neither the key nor the value of the records.
    """
    value = batch.schema
    fields = {field.name for field in value.fields}
    is_change = contract is Contract.CHANGE or (
        contract is Contract.AUTO and value.type is Type.STRUCT and fields >= _CHANGE
    )
    if is_change:
        return _change_rows(batch, configured, table)
    if value.type is not Type.STRUCT:
        value = Schema.struct({"value": value.replaced(optional=True)})
        own = {"value": "value"}
    else:
        own = {field.name: batch.field_sql(field.name) for field in value.fields}
    key = batch.key_schema
    in_key: dict[str, str] = {}
    if key is not None:
        in_key = (
            {f.name: f"key.{quote(f.name)}" for f in key.fields}
            if key.type is Type.STRUCT
            else {}
        )
    keys = tuple(configured) or tuple(in_key) or primary_key(value)
    keys = keys or (table.key if table is not None and set(table.key) <= set(own) else ())
    key_schemas = {f.name: f.schema for f in key.fields} if key is not None else {}
    for name in keys:
        if name in own or name in in_key:
            continue
        if key is None or key.type is Type.STRUCT:
            raise ConfigError(
                problem=f"Neither the key nor the value of the records has a field {name}.",
                fix=f"The value has: {', '.join(own) or 'no fields'}.",
                field="key.fields",
            )
        in_key[name], key_schemas[name] = "key", key
    key_sql = {name: in_key.get(name) or own[name] for name in keys}
    added = {name: sql for name, sql in key_sql.items() if name not in own}
    members = {f.name: f.schema for f in value.fields}
    members |= {name: key_schemas[name] for name in added}
    return RecordRows(
        schema=value.with_fields(members),
        fields={**own, **added},
        keys=keys,
        key_fields=key_sql,
        is_change=False,
    )


def _change_rows(
    batch: SinkBatch, configured: Sequence[str], table: Table | None
) -> RecordRows:
    after = batch.schema.field("after")
    if after is None or after.schema.type is not Type.STRUCT:
        raise ConfigError(
            problem="The records are not changes: the field after is not a struct.",
            fix="Set contract=row, or send changes with before, after and op.",
            field="contract",
        )
    row = after.schema.bare()
    key = batch.key_schema
    named = [f.name for f in key.fields] if key is not None and key.type is Type.STRUCT else []
    keys = tuple(configured) or tuple(named) or primary_key(row)
    keys = keys or (table.key if table is not None else ())
    missing = [name for name in keys if row.field(name) is None]
    if missing or not keys:
        raise ConfigError(
            problem=f"The changed rows have no field {missing[0]}."
            if missing
            else "The key columns of the changed rows are not known.",
            fix="Set key.fields to columns of the rows.",
            field="key.fields",
        )
    fields = {f.name: f"row.{quote(f.name)}" for f in row.fields}
    return RecordRows(schema=row, fields=fields, keys=keys, key_fields={}, is_change=True)


def _record(frame: DataFrame) -> list[str]:
    return [f"{RECORD_ID} AS {RECORD}"] if RECORD_ID in frame.columns else []


def _is_json(schema: Schema) -> bool:
    if schema.is_logical:
        return schema.name == VARIANT
    return schema.type in {Type.STRUCT, Type.ARRAY, Type.MAP}


def _json_text(schema: Schema) -> Schema:
    parameters = {k: v for k, v in schema.parameters.items() if k == COLUMN_TYPE}
    return Schema.string(optional=schema.optional, parameters=parameters)
