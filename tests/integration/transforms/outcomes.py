"""What transforms make of records, many of them in one Spark query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.dataplane import Step
from headrace.sdk import Predicate, RecordExpr, Schema, Struct, Transform, Type, ValueExpr
from headrace.sdk.sqltext import literal, sql_value

TOPIC = "t"
NOTHING = ValueExpr(None)
HEADERS = "array<struct<key:string,value:string,type:string>>"


@dataclass(frozen=True)
class Trial:
    """One step over one record."""

    step: Step
    value: ValueExpr
    key: ValueExpr = NOTHING
    partition: str = "CAST(NULL AS INT)"
    timestamp: str = "CAST(NULL AS TIMESTAMP)"
    offset: str | None = None
    topic: str = TOPIC
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def shape(self) -> RecordExpr:
        """The record."""
        return RecordExpr(
            key=self.key,
            value=self.value,
            topic=literal(self.topic),
            partition=self.partition,
            headers=f"CAST(array({', '.join(map(_header, self.headers))}) AS {HEADERS})",
            timestamp=self.timestamp,
            offset=self.offset,
        )


def _header(header: tuple[str, str]) -> str:
    key, text = map(literal, header)
    return f"named_struct('key', {key}, 'value', {text}, 'type', 'string')"


def step(
    kind: type[Transform], config: dict[str, str], predicate: Predicate | None = None
) -> Step:
    """A transform of the value, or with ``"of": "key"`` of the key."""
    props = {name: text for name, text in config.items() if name != "of"}
    of_key = config.get("of") == "key"
    return Step(kind("x", kind.config_def().parse(props), of_key=of_key), predicate)


def with_schema(schema: Schema, value: Any) -> ValueExpr:
    """A value, with plain dictionaries for structs."""
    return ValueExpr.of(sql_value(schema, made(schema, value)), schema)


def without_schema(value: Any) -> ValueExpr:
    """A value as Kafka Connect's JSON converter gives it without a schema."""
    if value is None:
        return ValueExpr(None)
    schema = inferred(value)
    return ValueExpr.of(sql_value(schema, made(schema, value)), schema, schemaless=True)


def made(schema: Schema, value: Any) -> Any:
    """Give the value with structs where the schema says so."""
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        fields = {f.name: made(f.schema, value.get(f.name)) for f in schema.fields}
        return Struct(schema, {n: item for n, item in fields.items() if item is not None})
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [made(schema.value_schema, item) for item in value]
    return value


def inferred(value: Any) -> Schema:
    """Give the schema of a JSON value."""
    match value:
        case dict():
            return Schema.struct({n: inferred(v) for n, v in value.items()}, optional=True)
        case list():
            return Schema.array(
                inferred(value[0]) if value else Schema.string(optional=True), optional=True
            )
        case bool():
            return Schema.boolean(optional=True)
        case int():
            return Schema.int64(optional=True)
        case float():
            return Schema.float64(optional=True)
        case _:
            return Schema.string(optional=True)


def outcomes(
    spark: Any, trials: Sequence[Trial], columns: Sequence[str] = ("key", "value")
) -> list[dict[str, Any]]:
    """Give these columns of each, or ``{"error": class, "message"}``; one Spark job."""
    given, made = [], []
    for number, trial in enumerate(trials):
        value = trial.value.sql()
        given.append(f"{value} AS v{number}")
        shape = shape_after(trial, f"v{number}")
        sql = {
            "key": shape.key.sql(),
            "value": shape.value.sql(),
            "topic": shape.topic,
            "headers": shape.headers,
            "dropped": f"({shape.dropped or 'NULL'}) IS NOT NULL",
            "error": shape.error or "NULL",
        }
        told = ", ".join(f"'{name}', {sql[name]}" for name in (*columns, "error"))
        made.append(f"named_struct({told}) AS c{number}")
    row = spark.sql(f"SELECT {', '.join(given)}").selectExpr(*made).first()
    return [_outcome(found.asDict(recursive=True)) for found in row]


def shape_after(trial: Trial, column: str = "value") -> RecordExpr:
    """Give the shape after a trial's step, of a record whose value is in a column."""
    value = trial.value
    if value.schema is not None:
        value = ValueExpr.of(column, value.schema, schemaless=value.schemaless)
    return trial.step.apply(replace(trial.shape, value=value))


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    error = found.pop("error")
    if error is None:
        return found
    return {"error": error["exception"], "message": error["message"]}
