"""Compares the rows of a source, after the chain, with the rows of a target, on Spark.

Both sides are hashed into buckets: one job returns for each bucket the count and an
order-independent sum of the rows' hashes. Rows are compared by key only in buckets that differ,
and values only of a few rows that differ. The driver gets nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, reduce
from itertools import zip_longest
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.comparable import Comparable, comparable, matched_names
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.sources import (
    FILTERED,
    KEPT,
    REJECTED,
    Expected,
    fate_sql,
    table_records,
)
from headrace.sdk import ConfigError, Schema
from headrace.sdk.schema import TIME, primary_key
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sqltext import JSON_OPTIONS, literal, selected, sql_null, sql_type
from headrace.sdk.tables import TableRows


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of a comparison.

    Args:
        max_differences: How many rows that differ are shown per table.
        settle: How long to wait before reading keys that differ again; zero to not read again.
        allow_loss: Whether to ignore digits that the target's type cannot represent.
        sleep: Waits for a number of seconds.
        report: Called with the description of each step.
    """

    max_differences: int = 20
    settle: timedelta = timedelta(seconds=5)
    allow_loss: bool = False
    sleep: Callable[[float], None] = time.sleep
    report: Callable[[str], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs.

    Args:
        kind: ``missing`` in the target, ``extra`` in the target, or ``different``.
        key: The columns that identify the row; empty if there is no key.
        columns: The values of both sides: of the columns that differ or, if one side does not
            have the row, of all columns: ``{"source": ..., "target": ...}``.
    """

    kind: str
    key: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many rows differ.

    Args:
        keys: How many keys have rows that differ.
        repeated: Additional source rows with the same key, if the target stores one per key.
    """

    keys: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """The result of comparing a table.

    Args:
        source_rows: Rows that are expected in the target.
        filtered, rejected: Rows of the source that the chain drops, or rejects.
        figures: The final differences.
        moved: Keys that differed at first but not when they were read again.
        lacking: Columns that the target does not have.
        notes: Remarks for the user, such as the digits that a type cannot represent.
        repaired: Rows that were sent again, including rows to delete.
        error: Why the table could not be compared, and the fix; empty if it was compared.
    """

    stream: str
    target: str
    key: Sequence[str]
    source_rows: int
    target_rows: int
    filtered: int = 0
    rejected: int = 0
    figures: Figures = field(default_factory=Figures)
    moved: int = 0
    lacking: Sequence[str] = ()
    notes: Sequence[str] = ()
    differences: Sequence[Difference] = ()
    repaired: int = 0
    error: str = ""

    @property
    def equal(self) -> bool:
        """Whether the target has the same rows as the source."""
        return not self.figures.keys and not self.lacking and not self.error


@dataclass(frozen=True)
class Resending:
    """Records that a repair sends to a sink.

    Args:
        frame: Columns ``key``, ``value``, ``headers`` and ``timestamp``; null values delete.
    """

    frame: DataFrame
    key_schema: Schema
    value_schema: Schema


BUCKETS = 8192
"""How many buckets the rows are divided into. If one of 100 million rows differs, 12,000 others
are compared by key. The driver gets one result row per bucket."""
_ROUNDS = 6
"""How often keys that differ are read again at most; each wait is twice as long as the last."""
_ROWS_OF_KEY = 3
_SEPARATOR = 7_046_029_254_386_353_131
"""Spark's hash ignores nulls: numbers between the values make the position of nulls count."""
_BROADCAST = 200_000


@dataclass(frozen=True)
class _Column:
    """A column that is compared.

    Args:
        name: The source's name of the column.
        in_key: Whether the column comes from the records' key, since their values lack it.
    """

    name: str
    target: str
    schema: Schema
    target_schema: Schema
    compared: Comparable
    in_key: bool = False


class TableComparison:
    """Compares the rows of streams with their target tables. Not thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        expected: Sequence[Expected],
        targets: Sequence[TableRows],
        options: VerifyOptions,
        *,
        ignores_added: bool = False,
    ) -> None:
        """Analyze the sources, without running a job.

        ``ignores_added`` allows the target to lack columns of the source.
        """
        self._spark = spark
        self._expected = expected
        self._targets = targets
        self._options = options
        self._records = [each.records(spark) for each in expected]
        self._ignores_added = ignores_added
        self._truncated = False
        self._found: DataFrame | None = None

    @property
    def title(self) -> str:
        """The target's name in output."""
        return ", ".join(each.title for each in self._targets) or "no table yet"

    @property
    def stream(self) -> str:
        """The source's name in output."""
        return ", ".join(dict.fromkeys(each.stream for each in self._expected))

    @property
    def topic(self) -> str:
        """The topic of the rows; the first one if several share a table."""
        return self._expected[0].topic

    @property
    def is_there(self) -> bool:
        """Whether the target has a table."""
        return bool(self._targets)

    @property
    def replaces(self) -> bool:
        """Whether every target replaces a row that is sent again."""
        return bool(self.key) and all(each.replaces for each in self._targets)

    @property
    def deletes(self) -> bool:
        """Whether every target deletes the row of a key."""
        return self.replaces and all(each.deletes for each in self._targets)

    def close(self) -> None:
        """Free the data that Spark caches."""
        if self._found is not None:
            self._found.unpersist()
            self._found = None

    def run(self) -> TableResult:
        """Compare, read keys that differ again, and collect some rows that differ."""
        result, differing = self._compared()
        if not differing:
            return result
        self._options.report(f"{self.stream}: comparing rows of {len(differing)} buckets")
        among = ", ".join(map(str, differing))
        result = replace(result, figures=self._by_key(f"bucket IN ({among})"))
        if result.figures.keys and self._options.settle:
            result = self._settled(result)
        if result.figures.keys:
            self._options.report(f"{self.stream}: looking at rows that differ")
            result = replace(result, differences=self._differences())
        return result

    def again(self, result: TableResult) -> TableResult:
        """Compare again the keys that differed, for example after a repair."""
        figures = self._look_again(result.figures)
        return replace(
            result, figures=figures, differences=self._differences() if figures.keys else ()
        )

    # What is compared with what

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, by the source's names; empty if there is no key."""
        keys = {each.key for each in self._targets}
        candidates = [keys.pop()] if len(keys) == 1 else []
        candidates.append(primary_key(self._schema))
        record_key = self._records[0].shape.key
        candidates.append(tuple(record_key.fields) if record_key.is_struct else ())
        for names in candidates:
            found = [self._key_field(name) for name in names]
            if found and all(found):
                return tuple(str(name) for name in found)
        return ()

    def _key_field(self, name: str) -> str | None:
        """Return the source's name of a column that both sides have."""
        schemas = [self._schema, self._key_schema, self._target_schema]
        own = [
            next((f.name for f in each.fields if f.name.lower() == name.lower()), None)
            for each in schemas
        ]
        here = own[0] or own[1]
        return here if here and (own[2] or not self._targets) else None

    @cached_property
    def _schema(self) -> Schema:
        found = [each.shape.value.schema for each in self._records]
        if any(not each.shape.value.is_struct for each in self._records):
            problem = (
                f"The values of {self.stream} are not rows: their type is "
                f"{found[0].type.value if found[0] else 'not known'}."
            )
            raise ConfigError(
                problem,
                fix="Verify compares rows only: use transforms that return struct values.",
            )
        return _merged([each for each in found if each is not None])

    @cached_property
    def _key_schema(self) -> Schema:
        part = self._records[0].shape.key
        return part.schema if part.is_struct and part.schema is not None else Schema.struct({})

    @cached_property
    def _target_schema(self) -> Schema:
        found = [_value_schema(self._target_records(each)) for each in self._targets]
        return _merged(found) if found else self._schema

    def _target_records(self, table: TableRows) -> RecordFrame:
        return table_records(self._spark, replace(table, keyed=False), self.topic)

    @cached_property
    def _columns(self) -> list[_Column]:
        names = matched_names(self._schema, self._target_schema)
        columns = [
            self._column(each.name, each.schema, names[each.name])
            for each in self._schema.fields
            if each.name in names
        ]
        own_names = {each.name for each in columns}
        held = {f.name.lower(): f.name for f in self._target_schema.fields}
        for name in self.key:
            part = self._key_schema.field(name)
            if name not in own_names and part is not None:
                target = held.get(name.lower(), name)
                columns.append(self._column(name, part.schema, target, in_key=True))
        return columns

    def _column(
        self, name: str, schema: Schema, target: str, *, in_key: bool = False
    ) -> _Column:
        there = self._target_schema.field(target)
        held = schema if there is None else there.schema
        how = comparable(schema, held, allow_loss=self._options.allow_loss)
        return _Column(name, target, schema, held, how, in_key)

    def _lacking(self) -> list[str]:
        there = {each.name for each in self._columns}
        return [field.name for field in self._schema.fields if field.name not in there]

    def _notes(self) -> list[str]:
        how = "compared as stored" if self._options.allow_loss else "see --allow-loss"
        notes = [
            f"column {c.name}: {c.compared.loss} ({how})"
            for c in self._columns
            if c.compared.loss
        ]
        notes += [f"column {name}: not in the target" for name in self._lacking()]
        held = {each.target for each in self._columns}
        extra = [field.name for field in self._target_schema.fields if field.name not in held]
        if extra and self._targets:
            notes.append(f"only in the target, and not compared: {', '.join(extra)}")
        if not self.key:
            notes.append("no key: whole rows are compared")
        return notes

    # One job over all rows

    def _compared(self) -> tuple[TableResult, list[int]]:
        """Compare all rows by bucket; return the figures, and the buckets that differ."""
        result, differing = self._by_bucket()
        if differing and any(each.compared.truncated for each in self._columns):
            # Some targets round the digits that they cannot store, others truncate them.
            self._truncated = True
            other, fewer = self._by_bucket()
            if len(fewer) < len(differing):
                return other, fewer
            self._truncated = False
        return result, differing

    def _by_bucket(self) -> tuple[TableResult, list[int]]:
        self._options.report(f"{self.stream}: comparing checksums")
        rows = self._both(f"IF(fate = {KEPT}, bucket, -1) AS bucket", "fate", "hash")
        # Sums of the halves cannot overflow.
        halves = ("shiftright(hash, 32)", "hash & 4294967295")
        kept = f"fate = {KEPT}"
        figures = {
            "source_rows": f"count_if(own AND {kept})",
            "target_rows": "count_if(NOT own)",
            "filtered": f"count_if(fate = {FILTERED})",
            "rejected": f"count_if(fate = {REJECTED})",
            "same": " AND ".join(f"sum(IF(own, {half}, -({half}))) = 0" for half in halves),
        }
        measures = [F.expr(sql).alias(name) for name, sql in figures.items()]
        found = [row.asDict() for row in rows.groupBy("bucket").agg(*measures).collect()]
        differing = [
            int(row["bucket"])
            for row in found
            if row["bucket"] >= 0
            and (not row["same"] or row["source_rows"] != row["target_rows"])
        ]
        source_rows, target_rows, filtered, rejected = (
            sum(int(row[name]) for row in found) for name in list(figures)[:4]
        )
        result = TableResult(
            stream=self.stream,
            target=self.title,
            key=self.key,
            lacking=() if self._ignores_added else self._lacking(),
            notes=self._notes(),
            source_rows=source_rows,
            target_rows=target_rows,
            filtered=filtered,
            rejected=rejected,
        )
        return result, differing

    def _both(self, *columns: str) -> DataFrame:
        """Return columns of the rows of both sides; ``own`` is true for the source's rows."""
        sides = [(True, each) for each in self._records]
        sides += [(False, self._target_records(table)) for table in self._targets]
        frames = [
            self._rows(records, own=own).selectExpr(f"{str(own).lower()} AS own", *columns)
            for own, records in sides
        ]
        return reduce(DataFrame.unionAll, frames)

    def _rows(self, records: RecordFrame, *, own: bool) -> DataFrame:
        """Return the rows of one side with the columns for the comparison.

        Columns: ``c0``... for the compared form of the values, ``v0``... for the values,
        ``fate``, ``hash`` of the row, ``bucket`` and ``id`` of its key, and the record's parts.
        """
        values = self._values(records, own=own)
        names = [f"c{n}" for n in range(len(self._columns))]
        compared = [
            each.compared.of_source(sql, truncated=self._truncated)
            if own
            else each.compared.target(sql)
            for each, sql in zip(self._columns, values, strict=True)
        ]
        columns = [
            *(f"{sql} AS {name}" for sql, name in zip(compared, names, strict=True)),
            *(f"{sql} AS v{n}" for n, sql in enumerate(values)),
            f"{fate_sql(records) if own else KEPT} AS fate",
            *(f"{records.parts()[part]} AS {part}" for part in _PARTS if own),
        ]
        keys = [names[n] for n, each in enumerate(self._columns) if each.name in self.key]
        identity = ", ".join(f"'{name}', {name}" for name in keys)
        identity = (
            f"to_json(named_struct({identity}), {JSON_OPTIONS})"
            if keys
            else "CAST(hash AS STRING)"
        )
        frame = selected(records.frame, columns)
        frame = frame.selectExpr("*", f"{_hash(names)} AS hash")
        bucket = f"pmod({_hash(keys) if keys else 'hash'}, {BUCKETS}) AS bucket"
        return frame.selectExpr("*", bucket, f"{identity} AS id")

    def _values(self, records: RecordFrame, *, own: bool) -> list[str]:
        fields, key = records.fields(), records.shape.key.fields
        found = (
            (key if own and each.in_key else fields).get(each.name if own else each.target)
            for each in self._columns
        )
        # If several streams or tables are compared, one may lack a column of the others.
        schemas = (each.schema if own else each.target_schema for each in self._columns)
        return [sql or sql_null(schema) for sql, schema in zip(found, schemas, strict=True)]

    # Jobs over what differs

    def _by_key(self, condition: str, among: DataFrame | None = None) -> Figures:
        """Count the rows that differ by key, and cache the keys in ``_found``.

        Args:
            condition: SQL that selects the rows.
            among: The ``id`` of the keys to compare; None for all.
        """
        rows = self._both("id", "hash", "bucket", "fate").where(f"fate = {KEPT}")
        rows = rows.where(condition)
        if among is not None:
            rows = rows.join(among, "id", "left_semi")
        sides = ("count_if(own) AS s", "count_if(NOT own) AS t")
        by_row = rows.groupBy("id", "hash").agg(*map(F.expr, sides))
        sums = ("sum(s) AS s", "sum(t) AS t", "sum(least(s, t)) AS same")
        by_key = by_row.groupBy("id").agg(*map(F.expr, sums))
        # A target that replaces rows has the source's last row of each key.
        lost = "IF(same > 0, 0, least(s, 1))" if self.replaces else "s - same"
        repeated = "greatest(s - 1, 0)" if self.replaces else "0"
        surplus = "t - same"
        found = by_key.selectExpr(
            "id",
            "s AS source_rows",
            f"{repeated} AS repeated",
            f"least({lost}, {surplus}) AS different",
            f"{lost} - least({lost}, {surplus}) AS missing",
            f"{surplus} - least({lost}, {surplus}) AS extra",
        ).where("repeated + different + missing + extra > 0")
        before, self._found = self._found, found.persist()
        try:
            total = self._found.selectExpr(
                f"count_if({_DIFFERS}) AS keys",
                *(f"coalesce(sum({name}), 0) AS {name}" for name in _FIGURES),
            ).collect()[0]
        finally:
            if before is not None:
                before.unpersist()
        return Figures(**{name: int(total[name]) for name in ("keys", *_FIGURES)})

    def _settled(self, result: TableResult) -> TableResult:
        """Read keys that differ again until no more of them turn out to be equal."""
        moved, wait = 0, self._options.settle.total_seconds()
        for _ in range(_ROUNDS):
            keys = result.figures.keys
            self._options.report(
                f"{self.stream}: {keys} keys differ, reading again in {wait:g} s"
            )
            self._options.sleep(wait)
            figures = self._look_again(result.figures)
            moved += keys - figures.keys
            result = replace(result, figures=figures, moved=moved)
            if figures.keys in (0, keys):
                break
            wait *= 2
        return result

    def _look_again(self, figures: Figures) -> Figures:
        assert self._found is not None
        keys = self._found.where(_DIFFERS).select("id")
        if figures.keys <= _BROADCAST:
            keys = F.broadcast(keys)
        self._records = [each.records(self._spark) for each in self._expected]
        again = self._by_key("true", keys)
        return replace(again, repeated=max(again.repeated, figures.repeated))

    def _differences(self) -> list[Difference]:
        """Return the first rows that differ, with the values of both sides."""
        assert self._found is not None
        most = self._options.max_differences
        chosen = self._found.where(_DIFFERS).orderBy("id").limit(most).select("id").collect()
        keys = self._spark.createDataFrame([(row["id"],) for row in chosen], "id STRING")
        shown = ", ".join(
            f"{literal(each.name)}, {_shown(f'v{n}', each)}"
            for n, each in enumerate(self._columns)
        )
        # Equal values of two types may be shown differently, so also get the compared form.
        cells = ", ".join(f"{literal(c.name)}, c{n}" for n, c in enumerate(self._columns))
        rows = self._both(
            "id",
            "fate",
            "hash",
            f"to_json(named_struct({shown}), {JSON_OPTIONS}) AS shown",
            f"to_json(named_struct({cells}), {JSON_OPTIONS}) AS compared",
        ).where(f"fate = {KEPT}")
        few = Window.partitionBy("id", "own").orderBy("hash")
        rows = rows.join(F.broadcast(keys), "id", "left_semi")
        rows = rows.withColumn("number", F.row_number().over(few))
        found: dict[str, tuple[list[Row], list[Row]]] = {row["id"]: ([], []) for row in chosen}
        for row in rows.where(f"number <= {_ROWS_OF_KEY}").collect():
            found[row["id"]][0 if row["own"] else 1].append(row)
        different = [each for pair in found.values() for each in self._paired(*pair)]
        return different[:most]

    def _paired(self, source: Sequence[Row], target: Sequence[Row]) -> list[Difference]:
        alike = {row["hash"] for row in source} & {row["hash"] for row in target}
        if alike and self.replaces:
            return []
        left = [row for row in source if row["hash"] not in alike]
        right = [row for row in target if row["hash"] not in alike]
        return [self._difference(one, other) for one, other in zip_longest(left, right)]

    def _difference(self, source: Row | None, target: Row | None) -> Difference:
        ones, others = _cells(source, "shown"), _cells(target, "shown")
        own, held = _cells(source, "compared"), _cells(target, "compared")
        names = [each.name for each in self._columns]
        key = {name: (ones or others)[name] for name in names if name in self.key}
        if source is not None and target is not None:
            columns = {
                name: {"source": ones[name], "target": others[name]}
                for name in names
                if own[name] != held[name]
            }
            return Difference("different", key, columns)
        side, values = ("source", ones) if source is not None else ("target", others)
        columns = {name: {side: values[name]} for name in names}
        return Difference("missing" if source is not None else "extra", key, columns)

    # What a repair sends

    def to_send(self, *, delete_extra: bool) -> Resending:
        """Return the records that make the target equal: rows, and keys to delete.

        Called after ``run``. Reads a new snapshot of the source: its newest rows are sent, and
        keys that it contains now are not deleted. The key of each record is a struct of the
        key's columns. If a key has several rows in the source, all of them are sent.
        """
        assert self._found is not None
        now = [each.records(self._spark, at_once=True) for each in self._expected]
        schemas = {each.name: each.schema for each in self._columns if each.name in self.key}
        key = Schema.struct({name: schemas[name] for name in self.key})
        value = self._schema.replaced(optional=True)
        numbers = {each.name: n for n, each in enumerate(self._columns)}
        pairs = ", ".join(
            f"{literal(name)}, CAST(v{numbers[name]} AS {sql_type(schema)})"
            for name, schema in schemas.items()
        )
        source = reduce(
            DataFrame.unionAll,
            (
                self._rows(each, own=True)
                .where(f"fate = {KEPT}")
                .selectExpr(
                    "id",
                    f"named_struct({pairs}) AS key",
                    f"CAST(value AS {sql_type(value)}) AS value",
                    "headers",
                    "timestamp",
                )
                for each in now
            ),
        )
        lacking = self._found.where("missing > 0 OR different > 0").select("id")
        frames = [source.join(lacking, "id", "left_semi")]
        if delete_extra:
            gone = self._found.where("extra > 0 AND source_rows = 0").select("id")
            gone = gone.join(source.select("id"), "id", "left_anti")
            nothing = {"value": sql_type(value), "headers": _HEADERS, "timestamp": "TIMESTAMP"}
            nulls = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in nothing.items()]
            frames += [
                self._rows(self._target_records(table), own=False)
                .selectExpr("id", f"named_struct({pairs}) AS key", *nulls)
                .join(gone, "id", "left_semi")
                for table in self._targets
            ]
        return Resending(reduce(DataFrame.unionAll, frames).drop("id"), key, value)


_PARTS = ("value", "headers", "timestamp")
_HEADERS = "array<struct<key:string,value:string,type:string>>"
_FIGURES = ("missing", "extra", "different", "repeated")
_DIFFERS = "missing + extra + different > 0"


def _hash(names: Sequence[str]) -> str:
    values = ", ".join(f"{name}, {_SEPARATOR + n}L" for n, name in enumerate(names))
    return f"xxhash64({values})"


def _shown(sql: str, column: _Column) -> str:
    """Return SQL of a value in readable form; a time of day as a clock time."""
    times = TIME in (column.schema.name, column.target_schema.name)
    if not times:
        return sql
    clock = f"date_format(timestamp_micros(try_cast({sql} AS BIGINT)), 'HH:mm:ss.SSSSSS')"
    return f"coalesce({clock}, CAST({sql} AS STRING))"


def _cells(row: Row | None, name: str) -> dict[str, Any]:
    cells: dict[str, Any] = {} if row is None else json.loads(row[name], parse_float=str)
    return cells


def _merged(schemas: Sequence[Schema]) -> Schema:
    """Return a schema with the columns of all schemas; a column's type fits all of them."""
    return reduce(evolve, schemas)


def _value_schema(records: RecordFrame) -> Schema:
    schema = records.shape.value.schema
    assert schema is not None
    return schema
