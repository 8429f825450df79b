"""Transforms tried on single records, all of a test in one Spark job."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.dataplane import Step
from headrace.sdk import Predicate, RecordExpr, Schema, Transform, ValueExpr
from headrace.sdk.sqltext import literal, sql_value

HEADERS = "array<struct<key:string,value:string,type:string>>"


@dataclass(frozen=True)
class Try:
    """A transform and a record to put through it.

    Args:
        kind: The transform's class.
        config: Its keys.
        value: The record's value; `schema` says what it is.
        schema: Its schema; None for a record without a value.
        key: The record's key, a text.
        headers: Key, text and type of each.
        timestamp: SQL.
        schemaless: Whether the value travels without its schema.
        of_key: Whether the transform is for the key; then `value` is the key.
        predicate: What limits it.
    """

    kind: type[Transform]
    config: dict[str, str] = field(default_factory=dict)
    value: Any = 1
    schema: Schema | None = Schema.int64(optional=True)  # noqa: RUF009 - immutable
    topic: str = "t"
    headers: tuple[tuple[str, str, str], ...] = ()
    timestamp: str = "CAST(NULL AS TIMESTAMP)"
    schemaless: bool = False
    of_key: bool = False
    predicate: tuple[type[Predicate], dict[str, str]] | None = None
    constant_topic: bool = True

    def step(self) -> Step:
        transform = self.kind(
            "it", self.kind.config_def().parse(self.config), of_key=self.of_key
        )
        if self.predicate is None:
            return Step(transform)
        kind, config = self.predicate
        return Step(transform, kind("p", kind.config_def().parse(config)))

    def shape(self) -> RecordExpr:
        part = ValueExpr(None)
        if self.schema is not None:
            part = ValueExpr.of("value", self.schema, schemaless=self.schemaless)
        topic = literal(self.topic) if self.constant_topic else "topic"
        shape = RecordExpr(
            ValueExpr(None), part, topic, headers="headers", timestamp="timestamp"
        )
        return replace(shape, key=part, value=ValueExpr(None)) if self.of_key else shape

    def after(self) -> RecordExpr:
        return self.step().apply(self.shape())

    def sql(self, number: int) -> str:
        after = self.after()
        columns = {
            "topic": after.topic,
            "key": after.key.sql(),
            "value": after.value.sql(),
            "headers": after.headers,
            "dropped": after.dropped or "NULL",
            "error": after.error or "NULL",
        }
        named = ", ".join(f"'{name}', {sql}" for name, sql in columns.items())
        told = f"to_json(named_struct({named}), map('ignoreNullFields', 'false'))"
        return f"SELECT {number} AS n, {told} AS record FROM ({self._record()})"  # noqa: S608

    def _record(self) -> str:
        schema = self.schema or Schema.string(optional=True)
        value = sql_value(schema, self.value)
        headers = ", ".join(
            f"named_struct('key', {literal(k)}, 'value', {literal(v)}, 'type', {literal(t)})"
            for k, v, t in self.headers
        )
        given = f"CAST({'array(' + headers + ')' if headers else 'NULL'} AS {HEADERS})"
        return (
            f"SELECT {value} AS value, {given} AS headers, {self.timestamp} AS timestamp, "
            f"{literal(self.topic)} AS topic"
        )


def tried(spark: Any, *tries: Try) -> list[dict[str, Any]]:
    """Give each record after its transform: topic, key, value, headers, dropped, error."""
    sql = " UNION ALL ".join(one.sql(number) for number, one in enumerate(tries))
    rows = sorted(spark.sql(sql).collect(), key=lambda row: row["n"])
    return [json.loads(row["record"]) for row in rows]


def values(spark: Any, *tries: Try) -> list[Any]:
    """Give the values after each transform, or the messages of their errors."""
    return [
        one["value"] if one["error"] is None else one["error"]["message"]
        for one in tried(spark, *tries)
    ]
