"""The record frame: a DataFrame with the record columns, and its SQL expressions."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.sdk import RecordExpr, Schema, ValueExpr
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import connect_json, connect_schema
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import literal, literal_text, quote, selected, sql_type
from headrace.sdk.struct_exprs import has_variant, texts_of_variants, variants_of_texts

_TEXT = r"""(?:\b[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_COMMENT = r"(?:--[^\n]*|/\*.*?\*/)"
_NAME = r"(?:\w+|`(?:``|[^`])*`)"
_COLUMN = re.compile(rf"{_NAME}(?:\.{_NAME})*\Z")
_NAMES = re.compile(rf"{_TEXT}|{_COMMENT}|({_NAME})", re.DOTALL)
_WORD = re.compile(r"\w")
_MOST = 1000
_known: dict[tuple[Sql, frozenset[str]], str | None] = {}


class Sql(str):
    """An SQL expression.

    Plugins return expressions as plain texts. This class inspects them, and recognizes
    string literals, comments and quoted names.
    """

    __slots__ = ()

    @property
    def is_column(self) -> bool:
        """Whether the expression is only a column, or a field of a column."""
        return _COLUMN.match(self) is not None

    @property
    def references(self) -> frozenset[str]:
        """The names that the expression may refer to, including functions, in lower case."""
        names = (found[1] for found in _NAMES.finditer(self) if found[1])
        return frozenset(
            (n[1:-1].replace("``", "`") if n[0] == "`" else n).lower() for n in names
        )


class Replacement:
    """Replaces function calls by the columns that contain their results."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        """Map calls to the names of columns.

        A call is replaced where its exact text occurs as a whole, but not within a string
        literal, a comment or a quoted name.
        """
        self._columns = columns
        # Calls are looked up by length, since there are few lengths: a pattern of all calls
        # would try each of them at each place.
        self._lengths = sorted({len(call) for call in columns}, reverse=True)
        names = {call.partition("(")[0] for call in columns}
        each = "|".join(re.escape(name) for name in sorted(names))
        pattern = rf"(?<!\w)({each})(?=\()|{_TEXT}|{_COMMENT}|`(?:``|[^`])*`"
        self._pattern = re.compile(pattern, re.DOTALL)

    def over(self, sql: str) -> str:
        """Return the expression with the calls replaced."""
        if not self._columns or Sql(sql).is_column:
            return sql
        parts, copied, at = [], 0, 0
        while (found := self._pattern.search(sql, at)) is not None:
            call = self._call_at(sql, found.start()) if found[1] else None
            if call is None:
                # A call without a column may contain another call.
                at = found.end()
                continue
            parts += [sql[copied : found.start()], self._columns[call]]
            copied = at = found.start() + len(call)
        return "".join([*parts, sql[copied:]])

    def _call_at(self, sql: str, start: int) -> str | None:
        for length in self._lengths:
            end = start + length
            if sql[start:end] in self._columns and not _WORD.match(sql, end):
                return sql[start:end]
        return None


def constant_text(frame: DataFrame, sql: str) -> str | None:
    """Return the constant text of an expression over ``frame``; None if it is not constant.

    Called for each batch: literals and columns are recognized by their text, and the results
    of other expressions are cached.
    """
    expression = Sql(sql)
    text = literal_text(sql)
    if text is not None or expression.is_column:
        return text
    # The meaning of the expression depends on which of its names are columns.
    columns = frozenset(name.lower() for name in column_names(frame))
    key = expression, columns & expression.references
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = _folded(frame, sql)
    return _known[key]


def _folded(frame: DataFrame, sql: str) -> str | None:
    try:
        analyzed = frame.selectExpr(f"{sql} AS text")._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark shows no expressions
    except AnalysisException:
        return None  # running the step raises the error, with the step's name
    expression = analyzed.expressions().head()
    if not (expression.child().foldable() and expression.deterministic()):
        return None
    row = frame.sparkSession.sql("SELECT 1").selectExpr(f"CAST({sql} AS STRING)").head()
    text: str | None = row[0] if row else None
    return text


ERROR = Schema.struct(
    dict.fromkeys(
        ("stage", "plugin", "exception", "message", "raw"), Schema.string(optional=True)
    ),
    optional=True,
)
"""Why a record was rejected, see ``ERROR_TYPE``."""
ARROW_ERROR = to_arrow_type(ERROR)
NO_ERROR = f"CAST(NULL AS {ERROR_TYPE})"
_DECLARED = "headrace.connect"
Rejection = Mapping[str, str | None]
"""Why a record was rejected: the fields of ``ERROR``."""
_Result = TypeVar("_Result")
_MOST_SLICES = 32
"""Partitions per core; more would not balance the load better, and each costs 10 ms."""
WIDE = 100
"""A value with more fields is wide; the default of ``spark.sql.codegen.maxFields``."""
_FEW_COLUMNS = 100
RAW_COLUMNS = ("raw_key", "raw_value")
"""The bytes that converters could not read; in other records the bytes or null."""


@dataclass(frozen=True)
class RecordFrame:
    """Records as a Spark frame and expressions.

    Args:
        shape: The record as SQL expressions over the columns of ``frame``.
        position: SQL expression of an array that orders the records, if known.
        carried: Columns of ``frame`` that are passed through unchanged.
    """

    frame: DataFrame
    shape: RecordExpr
    position: str | None = None
    carried: tuple[str, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether the value has so many fields that projections of them are expensive.

        Spark does not compile stages with more fields, so separate columns gain nothing.
        """
        schema = self.shape.value.schema
        return schema is not None and _leaves(schema) > WIDE

    @property
    def schemas(self) -> tuple[Schema, Schema | None]:
        """The schemas of the values (required) and of the keys."""
        assert self.shape.value.schema is not None
        return self.shape.value.schema, self.shape.key.schema

    @property
    def is_flat(self) -> bool:
        """Whether the value's fields are columns of the frame."""
        return not self.shape.value.is_struct or "value" not in column_names(self.frame)

    def types(self, expressions: Sequence[str]) -> Schema:
        """Return the schema of a struct of named expressions. Runs no job."""
        tree = self.frame.selectExpr(*expressions)._jdf.schema().json()  # noqa: SLF001 - spares building StructType
        return from_spark_json(json.loads(str(tree)))

    def with_original(self) -> RecordFrame:
        """Return the same records with copies of all their current parts."""
        now = self.parts() | {"position": self.position or "CAST(NULL AS ARRAY<BIGINT>)"}
        columns = set(column_names(self.frame))
        for raw in RAW_COLUMNS:
            now[raw] = raw if raw in columns else "CAST(NULL AS BINARY)"
        names = {part: f"__original_{part}" for part in now}
        originals = [f"{sql} AS {names[part]}" for part, sql in now.items()]
        frame = self.frame.selectExpr("*", *originals)
        return replace(self, frame=frame, carried=tuple(names.values()))

    def keeping(self, name: str, sql: str) -> RecordFrame:
        """Return the same records with an additional carried column."""
        frame = self.frame.selectExpr("*", f"{sql} AS {name}")
        return replace(self, frame=frame, carried=(*self.carried, name))

    def original(self) -> list[str]:
        """Return SQL of the parts that ``with_original`` copied, under their names."""
        prefix = "__original_"
        originals = [name for name in self.carried if name.startswith(prefix)]
        return [f"{name} AS {name.removeprefix(prefix)}" for name in originals]

    def settled(self) -> RecordFrame:
        """Return the same records with every expression computed as a column.

        A step that would use an expression twice then uses a column twice. Spark
        merges the projections into one.
        """
        if self.shape.shared:
            return self._sharing().settled()
        if self.is_wide:
            return self._computed()
        if all(Sql(sql).is_column for sql in _expressions(self.shape)):
            return self
        return self.named()

    def _computed(self) -> RecordFrame:
        """Return the same records with a column for each expression that is not a column yet.

        Other fields stay where they are, most of them in the value: projecting a thousand
        unchanged columns takes Spark longer than reading them.
        """
        columns: dict[str, str] = {}
        names = self._new_names()

        def column(sql: str) -> str:
            if Sql(sql).is_column or literal_text(sql) is not None:
                return sql
            if sql not in columns:
                columns[sql] = next(names)
            return columns[sql]

        # A constant topic stays a literal, so that it is still recognized as constant.
        topic = constant_text(self.frame, self.shape.topic)
        known = self.shape if topic is None else replace(self.shape, topic=literal(topic))
        shape = _mapped(known, column)
        if not columns:
            return replace(self, shape=shape)
        frame = selected(self.frame, ["*", *(f"{sql} AS {c}" for sql, c in columns.items())])
        return replace(self, frame=frame, shape=shape)

    def _sharing(self) -> RecordFrame:
        """Return the same records with columns for the calls that their expressions share."""
        calls = dict(zip(self.shape.shared, self._new_names(), strict=False))
        # In a projection below the one that uses it twice, Spark computes the call once, and
        # need not build an error struct to check that it is null.
        computed = [f"{sql} AS {name}" for sql, name in calls.items()]
        frame = selected(self.frame, ["*", *computed])
        shape = _mapped(self.shape, Replacement(calls).over)
        return replace(self, frame=frame, shape=replace(shape, shared=()))

    def _new_names(self) -> Iterator[str]:
        taken = {name.lower() for name in column_names(self.frame)}
        return (name for number in count() if (name := f"__c{number}") not in taken)

    def named(self) -> RecordFrame:
        """Return the same records with the value's fields as columns of the same names.

        This is the view of SQL that users write: fields by name, a scalar value as ``value``,
        and the rest of the record as ``record.topic``, ``record.key``, ``record.timestamp``
        and ``record.headers``. Every other column begins with two underscores.
        """
        columns: dict[str, str] = {}
        key = _settle(self.shape.key, "__k", columns)
        value = _settle(self.shape.value, "", columns)
        plain = ("topic", "partition", "headers", "timestamp", "offset", "dropped", "error")
        present = {
            name: sql for name in plain if (sql := getattr(self.shape, name)) is not None
        }
        # A constant topic stays a literal, so that it is still recognized as constant.
        topic = constant_text(self.frame, self.shape.topic)
        fixed = {} if topic is None else {"topic": literal(topic)}
        present = {name: sql for name, sql in present.items() if name not in fixed}
        columns |= {f"__{name}": sql for name, sql in present.items()}
        if self.position is not None:
            columns["__position"] = self.position
        columns |= {name: name for name in self.carried}
        parts = self.parts()
        record = (f"{literal(n)}, {parts[n]}" for n in ("topic", "key", "timestamp", "headers"))
        columns.setdefault("record", f"named_struct({', '.join(record)})")
        named = [f"{sql} AS {quote(name)}" for name, sql in columns.items()]
        settled = {name: f"__{name}" for name in present} | fixed
        shape = RecordExpr(key=key, value=value, unfit=self.shape.unfit, shared=(), **settled)
        position = "__position" if self.position else None
        frame = selected(self.frame, named)
        return RecordFrame(frame, shape, position, self.carried)

    def fields(self) -> dict[str, str]:
        """Return the SQL of the value's fields by name; empty if it has no fields."""
        value = self.shape.value
        if value.missing is None:
            return dict(value.fields)
        return {name: f"IF({value.missing}, NULL, {sql})" for name, sql in value.fields.items()}

    def parts(self) -> dict[str, str]:
        """Return the SQL of a record's parts by name."""
        shape = self.shape
        return {
            "key": shape.key.sql(),
            "value": shape.value.sql(),
            "headers": shape.headers,
            "timestamp": shape.timestamp,
            "topic": shape.topic,
            "partition": shape.partition,
        }

    def outcome(self) -> dict[str, str]:
        """Return the SQL of the alias that dropped a record and of its error, both nullable."""
        return {
            "dropped": self.shape.dropped or "CAST(NULL AS STRING)",
            "error": self.shape.error or NO_ERROR,
        }

    def columns(self) -> list[str]:
        """Return the SQL of the columns that sinks get, for the final projection."""
        columns = self.parts() | ({"position": self.position} if self.position else {})
        return [f"{sql} AS {name}" for name, sql in columns.items()]


def record_frame(frame: DataFrame, topic: str, *, timestamp: str | None = None) -> RecordFrame:
    """Return a record frame for a frame that has ``value`` and maybe other record columns.

    Args:
        frame: A source's frame.
        topic: The topic or stream of all its records.
        timestamp: SQL for the timestamp of records without a timestamp.
    """
    types = _json(frame)
    kinds = {field["name"]: field["type"] for field in json.loads(types)["fields"]}
    parts = {f.name: f.schema for f in _schema(types).fields}
    if '"timestamp_ntz"' in types:
        # Spark's timestamp functions reject TIMESTAMP_NTZ; interpret it as UTC.
        casts = {name: f"CAST({name} AS {sql_type(kind)})" for name, kind in parts.items()}
        each = ((casts.get(name, quote(name)), quote(name)) for name in kinds)
        frame = frame.selectExpr(*(f"{sql} AS {name}" for sql, name in each))
    optional = ("partition", "headers", "timestamp", "error")
    columns: dict[str, str] = {name: name for name in optional if name in kinds}
    if timestamp is not None:
        own = columns.get("timestamp")
        columns["timestamp"] = f"coalesce({own}, {timestamp})" if own else timestamp
    shape = RecordExpr(
        key=_part("key", parts.get("key")),
        value=_part("value", parts["value"]),
        topic=literal(topic),
        offset=_offset(kinds["position"]) if "position" in kinds else None,
        unfit=False,
        shared=(),
        **columns,
    )
    return RecordFrame(frame, shape, "position" if "position" in kinds else None)


def frame_schema(frame: DataFrame) -> Schema:
    """Return the schema of a DataFrame's rows, with the declared schemas of keys and values."""
    return _schema(_json(frame))


def declared(frame: DataFrame, part: str, schema: Schema) -> DataFrame:
    """Return the frame with a declared schema for its key or value, as column metadata.

    It contains facts that Spark's types lack: names, defaults, and required fields.
    """
    found = frame_schema(frame).field(part)
    if found is None or found.schema == schema:
        return frame
    return frame.withMetadata(part, declaration(schema))


def declaration(schema: Schema) -> dict[str, str]:
    """Return column metadata that declares the schema of a key or value."""
    return {_DECLARED: json.dumps(connect_json(schema))}


def _json(frame: DataFrame) -> str:
    return str(frame._jdf.schema().json())  # noqa: SLF001 - spares building StructType


def column_names(frame: DataFrame) -> list[str]:
    """Return ``frame.columns``, without reading the types of all nested fields.

    For a value of a thousand fields that takes 50 ms each time, mostly in Py4J.
    """
    schema = frame._jdf.schema()  # noqa: SLF001 - has the names alone
    few = schema.size() <= _FEW_COLUMNS  # each is a call of Java
    return [str(name) for name in schema.fieldNames()] if few else frame.columns


def _offset(kind: Any) -> str | None:
    """Return SQL of the position as one number; None for positions of more (as in topics)."""
    if not isinstance(kind, dict) or kind.get("elementType") not in ("integer", "long"):
        return None
    return "IF(size(position) = 1, CAST(element_at(position, 1) AS BIGINT), NULL)"


@lru_cache(maxsize=256)
def _schema(text: str) -> Schema:
    names = {"key", "value"}
    tree = json.loads(text)
    fields = [field for field in tree["fields"] if field["name"] in names]
    plain = from_spark_json({**tree, "fields": fields})
    declarations = {
        field["name"]: (field.get("metadata") or {}).get(_DECLARED) for field in fields
    }
    schemas = {f.name: f.schema for f in plain.fields}
    for name, declaration in declarations.items():
        if declaration and (schema := connect_schema(json.loads(declaration))) is not None:
            schemas[name] = schema
    return plain.with_fields(schemas)


def _leaves(schema: Schema) -> int:
    return sum(_leaves(field.schema) for field in schema.fields) if schema.fields else 1


def _part(column: str, schema: Schema | None) -> ValueExpr:
    return ValueExpr(None) if schema is None else ValueExpr.of(column, schema)


def _expressions(shape: RecordExpr) -> list[str]:
    parts = [shape.key, shape.value]
    fields = [sql for part in parts for sql in part.fields.values()]
    wholes = [part.whole for part in parts if part.schema and not part.is_struct]
    return [*fields, *wholes, *(sql for sql in (shape.dropped, shape.error) if sql)]


def _mapped(shape: RecordExpr, change: Callable[[str], str]) -> RecordExpr:
    """Change each of a shape's expressions."""

    def part(one: ValueExpr) -> ValueExpr:
        fields = {name: change(sql) for name, sql in one.fields.items()}
        whole = one.whole if one.whole == "NULL" else change(one.whole)
        return replace(
            one, fields=fields, whole=whole, missing=one.missing and change(one.missing)
        )

    def maybe(sql: str | None) -> str | None:
        return sql and change(sql)

    return replace(
        shape,
        key=part(shape.key),
        value=part(shape.value),
        topic=change(shape.topic),
        partition=change(shape.partition),
        headers=change(shape.headers),
        timestamp=change(shape.timestamp),
        offset=maybe(shape.offset),
        dropped=maybe(shape.dropped),
        error=maybe(shape.error),
    )


def _settle(part: ValueExpr, prefix: str, columns: dict[str, str]) -> ValueExpr:
    """Add the part's columns; those of the value (no prefix) keep the field names."""
    if part.schema is None:
        return part
    missing = part.missing
    if missing is not None:
        columns[f"__missing{prefix}"] = missing
        missing = f"__missing{prefix}"
    if not part.is_struct:
        name = prefix or "value"
        columns[name] = part.whole
        return replace(part, whole=name, missing=missing)
    names = {
        name: f"{prefix}{number}" if prefix else name for number, name in enumerate(part.fields)
    }
    columns |= {names[name]: sql for name, sql in part.fields.items()}
    fields = {name: quote(column) for name, column in names.items()}
    return part.with_expressions(fields, missing)


def with_texts(frame: DataFrame, value: Schema, key: Schema | None = None) -> DataFrame:
    """Return the record frame with the variants of values and keys as JSON texts.

    Python workers get texts. Topics store texts too, since neither their maintenance nor plugin
    hosts nor most readers of Delta tables support VARIANT; the schema in the table's metadata
    distinguishes them from other texts.
    """
    return _with_changed(frame, {"value": value, "key": key}, texts_of_variants)


def with_variants(
    frame: DataFrame, value: Schema | None = None, key: Schema | None = None
) -> DataFrame:
    """Return the record frame with the JSON texts of its variants as variants.

    Declares the given schemas, since rebuilt structs lose their names.
    """
    made = _with_changed(frame, {"value": value, "key": key}, variants_of_texts)
    for name, schema in (("value", value), ("key", key)):
        if schema is not None and has_variant(schema):
            made = declared(made, name, schema)
    return made


def _with_changed(
    frame: DataFrame,
    schemas: Mapping[str, Schema | None],
    change: Callable[[str, Schema], str],
) -> DataFrame:
    sql = {
        name: f"{change(name, schema)} AS {name}"
        for name, schema in schemas.items()
        if schema is not None and has_variant(schema)
    }
    # The names of record columns need no quotes; others, such as _metadata, must not be quoted.
    return frame.selectExpr(*(sql.get(name, name) for name in frame.columns)) if sql else frame


def rejection(plugin: str, raw: str | None, reason: str) -> Rejection:
    """Return the error of source input that cannot become a record."""
    return {
        "stage": "TASK_POLL",
        "plugin": plugin,
        "exception": "RecordError",
        "message": reason,
        "raw": raw,
    }


def over_parts(
    spark: SparkSession,
    parts: Sequence[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: T.StructType | str,
) -> DataFrame:
    """Return a frame whose partition n contains the batches that ``work`` yields for part n."""
    if not parts:
        return spark.createDataFrame([], schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(parts[number])

    return in_workers(spark.range(0, len(parts), 1, len(parts)), run, schema)


def over_each(
    spark: SparkSession, parts: Sequence[Any], work: Callable[[Any], _Result]
) -> list[_Result]:
    """Return the results of ``work`` for each part, in order. Runs a job.

    The job uses an RDD, which takes half the time of a frame to plan and run. If there are
    many parts, each Spark partition processes several, one after the other.
    """
    if not parts:
        return []
    context = spark.sparkContext
    slices = min(len(parts), _MOST_SLICES * context.defaultParallelism)

    def run(mine: Iterable[Any]) -> Iterator[_Result]:
        yield from map(work, mine)
        _freeze()

    found: list[_Result] = context.parallelize(parts, slices).mapPartitions(run).collect()
    return found


def in_workers(
    frame: DataFrame,
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: T.StructType | str,
) -> DataFrame:
    """Return ``frame.mapInArrow``; its workers skip imported objects in garbage collection."""

    def ran(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run(batches)
        _freeze()

    return frame.mapInArrow(ran, schema)


@cache
def _freeze() -> None:
    """Exclude the imports of a worker's first task from garbage collection.

    A worker collects garbage after each task, before the next one: 30 ms with pyarrow and
    pandas.
    """
    gc.freeze()
