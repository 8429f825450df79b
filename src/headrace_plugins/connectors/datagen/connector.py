"""The datagen source: its settings, its connector and one task class for each gear."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    BoundaryKind,
    CaptureSource,
    ConfigError,
    DeliveryGuarantee,
    FrameSource,
    Position,
    Record,
    Schema,
    SourceConnector,
    Split,
    SplitSource,
    StreamSplitSource,
    Struct,
    Type,
)
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    NonEmptyString,
    NullOr,
    Range,
    Settings,
    ValidString,
    invalid,
    setting,
)
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.datagen.generator import (
    BATCH_ROWS,
    STEP_MICROS,
    Generator,
    GeneratorOptions,
    Lane,
    Plan,
    Rate,
    chance_sql,
    make_rows,
    map_keys,
    value_sql,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Boundaries, TaskContext
    from headrace.sdk.config import Config


_POLL_ROWS = 500
_POLL_SECONDS = 0.1
_ADDED = "added"


class FrameGenerator(Generator, FrameSource):
    """Makes rows in the JVM, with ``spark.range``."""

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        first, last = self.bounds(start, end)
        count = self.options.partitions
        if count is None:
            count = min(
                spark.sparkContext.defaultParallelism, len(self.parts(first, last)) or 1
            )
        row = self.options.lane.sql("id")
        rows = spark.range(first, last, 1, count).selectExpr(f"{row} AS row")
        columns = [f"{value_sql(self.options.plan, 'row')} AS value"]
        if self.options.bad:
            columns.append(f"{self._error_sql()} AS error")
        return rows.selectExpr(*columns)

    def _error_sql(self) -> str:
        chance = chance_sql(self.options.plan, "row", "?")
        error = (
            "named_struct('stage', 'TASK_POLL', 'plugin', 'datagen', "
            "'exception', 'RecordError', "
            "'message', concat('Row ', row, ' was made bad on purpose.'), "
            "'raw', CAST(row AS STRING))"
        )
        return f"IF({chance} < {self.options.bad!r}D, {error}, CAST(NULL AS {ERROR_TYPE}))"


class SplitGenerator(Generator, SplitSource):
    """Makes rows in Python, as Arrow batches."""

    @override
    def schema(self) -> Schema:
        return self.options.plan.schema

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return self.divided(start, end)

    @override
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self.batches(*_bounds(split))


class StreamGenerator(Generator, StreamSplitSource):
    """Makes the rows of several streams: row r belongs to stream ``r % streams``."""

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return self.divided(start, end)

    @override
    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        options = self.options
        before = options.plan.schema
        fields = {member.name: member.schema for member in before.fields}
        added = before.with_fields({**fields, _ADDED: Schema.string(optional=True)})
        after = replace(options.plan, schema=added)
        change = options.change_after
        for numbers in self.numbers(*_bounds(split), BATCH_ROWS * options.streams):
            for stream in range(options.streams):
                mine = numbers[numbers % options.streams == stream]
                old = mine if change is None else mine[mine < change]
                new = mine[:0] if change is None else mine[mine >= change]
                for plan, rows in ((options.plan, old), (after, new)):
                    if len(rows):
                        yield f"{options.name}-{stream}", make_rows(plan, rows)


class CaptureGenerator(Generator, CaptureSource):
    """Makes rows as records, as Kafka Connect's sources do."""

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._row = self.row(context.position())
        self._pace = Rate(self.options.rate, self.options.clock)
        self._pace.grant(self._row, 0)
        self._stopped = threading.Event()

    @override
    def poll(self) -> Sequence[Record] | None:
        granted = self._pace.grant(self._row, min(self.left(self._row), _POLL_ROWS))
        if granted == 0:
            self._stopped.wait(_POLL_SECONDS)
            return None
        (batch,) = self.batches(self._row, self._row + granted, granted)
        rows = batch.to_pylist(maps_as_pydicts="strict")
        first, self._row = self._row + 1, self._row + granted
        return [self._record(row, place) for place, row in enumerate(rows, first)]

    @override
    def stop(self) -> None:
        if hasattr(self, "_stopped"):
            self._stopped.set()

    def _record(self, row: Mapping[str, Any], place: int) -> Record:
        schema = self.options.plan.schema
        return Record(
            topic="",
            value=Struct.of(schema, row),
            value_schema=schema,
            source_partition=self.partition,
            source_offset={"row": place},
        )


def _bounds(split: Split) -> tuple[int, int]:
    return int(str(split.payload["start"])), int(str(split.payload["end"]))


DEFAULT_SCHEMA = (
    "id BIGINT NOT NULL, customer_id INT, reference STRING, price DOUBLE, "
    "amount DECIMAL(12, 2), paid BOOLEAN, ordered_on DATE, updated_at TIMESTAMP, "
    "token BINARY, tags ARRAY<STRING>, attributes MAP<STRING, STRING>, "
    "address STRUCT<street: STRING, number: INT>"
)
_PART, _PARTS = "task.part", "task.of"
Generators = StreamGenerator | SplitGenerator | CaptureGenerator | FrameGenerator


def _check_schema(name: str, value: object) -> None:
    schema = parse_ddl(str(value), field=name)
    for member in schema.fields:
        _check_maps(name, value, member.schema)


def _check_maps(name: str, value: object, schema: Schema) -> None:
    if schema.type is Type.MAP and map_keys(schema.key_schema or Schema.boolean()) is None:
        fix = "Use STRING or an integer type for keys."
        raise invalid(name, value, "Map keys must be strings or integers", fix=fix)
    members = [member.schema for member in schema.fields]
    for each in (*members, schema.key_schema, schema.value_schema):
        if each is not None:
            _check_maps(name, value, each)


def _check_time(name: str, value: object) -> None:
    _time(name, value)


def _time(name: str, value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError as error:
        fix = "Write it as 2025-01-31T00:00:00Z."
        raise invalid(name, value, "Not an ISO 8601 time", fix=fix) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class DatagenSettings(Settings, group="Generator"):
    """The settings of ``DatagenSource``."""

    rows: int | None = setting(
        "The total number of rows of all tasks, starting at first.row; unlimited if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=0)),
        importance=Importance.HIGH,
    )
    first_row: int = setting(
        "The number of the first row.",
        default=0,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    rate: float = setting(
        "Rows per second of all tasks together, measured from the start of each task. At most "
        "one second's worth of unused rows is carried over. 0 means unlimited.",
        default=0.0,
        validator=Range(at_least=0),
        importance=Importance.HIGH,
    )
    partitions: int | None = setting(
        "The number of splits of a batch; depends on the batch size if null.",
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    gear: str | None = setting(
        "How rows are made: frame uses Spark's JVM, split uses Python with Arrow batches, "
        "capture uses Python record by record. If null, frame, or split for several streams.",
        default=None,
        validator=NullOr(ValidString("frame", "split", "capture")),
    )
    schema: str = setting(
        "The columns, as Spark's DDL.",
        default=DEFAULT_SCHEMA,
        validator=Lambda(_check_schema, "columns in Spark's DDL"),
        importance=Importance.HIGH,
    )
    seed: int = setting("The seed of all values.", default=0, type=ConfigType.LONG)
    start_time: str = setting(
        "The timestamp of row 0, and the first of 365 dates. UTC if it has no time zone.",
        default="2025-01-01T00:00:00Z",
        validator=Lambda(_check_time, "a time in ISO 8601"),
    )
    null_ratio: float = setting(
        "The share of nulls in each nullable column, from 0 to 1.",
        default=0.0,
        validator=Range(at_least=0, at_most=1),
    )
    generator: str | None = setting(
        "The generator's name in positions and streams; the connector's name if null.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
    )
    streams: int = setting(
        "The number of streams. Rows are assigned to them round-robin. A stream's name is the "
        "generator's name, a hyphen and a number from 0.",
        default=1,
        validator=Range(at_least=1),
    )
    schema_change_after: int | None = setting(
        "From this row on, the rows of all streams have an additional column `added`.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=0)),
        importance=Importance.LOW,
    )
    bad_ratio: float = setting(
        "The share of records that are made bad, from 0 to 1, to test error handling.",
        default=0.0,
        validator=Range(at_least=0, at_most=1),
        importance=Importance.LOW,
    )


class DatagenSource(SourceConnector):
    """Makes deterministic rows for tests, demonstrations and measurements.

    Each value is a function of the seed, the column and the row number, so the same range
    contains the same rows in every gear and with any number of splits. A column ``id BIGINT``
    contains the row number; timestamps are one millisecond apart; all other values are
    uniformly distributed over a range.

    The position is ``{"generator": name} -> {"row": n}``. Each of n tasks reads every n-th
    block of 10,000 rows, and its partition also contains ``part`` and ``of``: after a change
    of ``tasks.max`` the rows are divided again and reading starts over.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    boundary_kinds = frozenset({BoundaryKind.TIME, BoundaryKind.VALUE})

    settings: DatagenSettings

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        gear, streams = config["gear"], config["streams"]
        if streams > 1 and gear in {"frame", "capture"}:
            yield ConfigError(
                f"gear {gear} supports only one stream.",
                field="streams",
                fix="Remove gear, or set gear to split.",
            )
        if config["bad.ratio"] and (streams > 1 or gear in {"split", "capture"}):
            yield ConfigError(
                "only gear frame can make bad records.",
                field="bad.ratio",
                fix="Set gear to frame and streams to 1.",
            )
        if config["schema.change.after"] is not None and streams == 1:
            yield ConfigError(
                "a single stream cannot change its schema.",
                field="schema.change.after",
                fix="Set streams to 2 or more.",
            )

    @override
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [
            {**self.config.originals, _PART: str(part), _PARTS: str(max_tasks)}
            for part in range(max_tasks)
        ]

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[Generators]:
        if config["streams"] > 1:
            return StreamGenerator
        match config.find_str("gear"):
            case "split":
                return SplitGenerator
            case "capture":
                return CaptureGenerator
            case _:
                return FrameGenerator

    @override
    @classmethod
    def task(cls, config: Config) -> Generators:
        return cls.task_class(config)(_options(config))

    @override
    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        if any("part" in partition for partition, _ in position.items()):
            return None  # each task counts only the rows of its own blocks
        options = _options(config)
        row = max(options.first, _row_at(time, options.plan.start))
        return Position(
            (partition, {"row": min(row, int(offset["row"]))})
            for partition, offset in position.items()
            if "generator" in partition
        )

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Set ``first.row`` and ``rows``: values are row numbers, times are timestamps."""
        settings, start = DatagenSettings.from_config(config), _options(config).plan.start
        bounds: list[int | None] = []
        for name, text in (("lower", boundaries.lower), ("upper", boundaries.upper)):
            try:
                bounds.append(None if text is None else _row(boundaries.kind, text, start))
            except ValueError as error:
                raise ConfigError(
                    problem=f"Invalid row number {text!r}.",
                    fix="Use an integer.",
                    field=f"boundaries.{name}",
                ) from error
        first, rows = settings.first_row, settings.rows
        ends = [
            end
            for end in (bounds[1], None if rows is None else first + rows)
            if end is not None
        ]
        if not ends:
            raise ConfigError(
                problem="The number of rows is unlimited.",
                fix="Set rows, or an upper bound.",
                field="rows",
            )
        first = max(first, bounds[0] or 0)
        more = {"first.row": str(first), "rows": str(max(0, min(ends) - first))}
        # Bounded rows are existing data: with a rate the run would have to wait for them.
        return {**config.originals, "rate": "0", **more}

    @override
    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        settings, start = DatagenSettings.from_config(config), _options(config).plan.start
        first = max(settings.first_row, _row(boundaries.kind, str(boundaries.lower), start))
        filled = {**config.originals, "first.row": str(first)}
        if settings.rows is not None:
            left = settings.first_row + settings.rows - first
            filled["rows"] = str(max(0, left))
        return filled

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        for partition, offset in position.items():
            row = offset.get("row")
            if "generator" not in partition or type(row) is not int or row < 0:
                raise ConfigError(
                    problem=f"Invalid position {dict(partition)} -> {dict(offset)}.",
                    field="offsets",
                    fix='Write {"generator": name} and {"row": n}, where n is 0 or more.',
                )


def _row_at(time: datetime, start: datetime) -> int:
    """Return the number of the first row whose timestamp is at or after ``time``."""
    return max(0, -(-(time - start) // timedelta(microseconds=STEP_MICROS)))


def _row(kind: BoundaryKind, bound: str, start: datetime) -> int:
    if kind is BoundaryKind.TIME:
        return _row_at(datetime.fromisoformat(bound), start)
    return max(0, int(bound))


def _options(config: Config) -> GeneratorOptions:
    settings = DatagenSettings.from_config(config)
    parts = int(config.originals.get(_PARTS, "1"))
    plan = Plan(
        schema=parse_ddl(settings.schema, field="schema"),
        seed=settings.seed,
        start=_time("start.time", settings.start_time),
        nulls=settings.null_ratio,
    )
    return GeneratorOptions(
        name=settings.generator or config.originals.get("name", "datagen"),
        plan=plan,
        first=settings.first_row,
        rows=settings.rows,
        rate=settings.rate / parts,
        lane=Lane(int(config.originals.get(_PART, "0")), parts),
        partitions=settings.partitions,
        bad=settings.bad_ratio,
        streams=settings.streams,
        change_after=settings.schema_change_after,
    )
