"""The generator's configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    BoundaryKind,
    ConfigError,
    DeliveryGuarantee,
    Position,
    Schema,
    SourceConnector,
    Type,
    parse_ddl,
)
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Lambda,
    NonEmptyString,
    NullOr,
    Range,
    ValidString,
    invalid,
)
from headrace_plugins.connectors.datagen.gears import (
    CaptureGenerator,
    FrameGenerator,
    SplitGenerator,
    StreamGenerator,
)
from headrace_plugins.connectors.datagen.generator import Settings
from headrace_plugins.connectors.datagen.pace import Lane
from headrace_plugins.connectors.datagen.plan import STEP_MICROS, Plan, map_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.sdk.config import Config

__all__ = ["DEFAULT_SCHEMA", "DatagenSource"]

DEFAULT_SCHEMA = (
    "id BIGINT NOT NULL, customer_id INT, reference STRING, price DOUBLE, "
    "amount DECIMAL(12, 2), paid BOOLEAN, ordered_on DATE, updated_at TIMESTAMP, "
    "token BINARY, tags ARRAY<STRING>, attributes MAP<STRING, STRING>, "
    "address STRUCT<street: STRING, number: INT>"
)
_PART, _PARTS = "task.part", "task.of"
_GROUP = "Generator"
Generators = StreamGenerator | SplitGenerator | CaptureGenerator | FrameGenerator


class DatagenSource(SourceConnector):
    """Makes rows by rule, for tests, demonstrations and measurements.

    Each value is a function of the seed, the column and the row's number, so the same range
    gives the same rows in every gear, however it is divided. A column ``id BIGINT`` is the
    row's number; timestamps follow one another by a millisecond; everything else is drawn
    evenly from a range.

    The position is ``{"generator": name} -> {"row": n}``. With several tasks, each takes every
    n-th block of 10,000 rows, and its partition also names ``part`` and ``of``: another
    ``tasks.max`` divides the rows anew and starts over.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    boundaries = frozenset({BoundaryKind.OFFSET})

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return _with_tests(_with_shape(_with_amount(ConfigDef())))

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        gear, streams = config.find_str("gear"), config.get_int("streams")
        if streams > 1 and gear in {"frame", "capture"}:
            yield ConfigError(
                f"the gear {gear} makes one stream only.",
                field="streams",
                fix="Leave gear out, or set it to split.",
            )
        if config.get_float("bad.ratio") and (streams > 1 or gear in {"split", "capture"}):
            yield ConfigError(
                "only the gear frame makes bad records.",
                field="bad.ratio",
                fix="Set gear to frame and streams to 1.",
            )
        if config.find_int("schema.change.after") is not None and streams == 1:
            yield ConfigError(
                "a single stream has one schema.",
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
        if config.get_int("streams") > 1:
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
        return cls.task_class(config)(_settings(config))

    @override
    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        if any("part" in partition for partition, _ in position.items()):
            return None  # each task counts its own rows, of blocks here and there
        row = _row_at(_settings(config), time)
        return Position(
            (partition, {"row": min(row, int(offset["row"]))})
            for partition, offset in position.items()
            if "generator" in partition
        )

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        for partition, offset in position.items():
            row = offset.get("row")
            if "generator" not in partition or type(row) is not int or row < 0:
                raise ConfigError(
                    problem=f"{dict(partition)} -> {dict(offset)} is no place in a generator.",
                    field="offsets",
                    fix='Write {"generator": name} and {"row": n}, where n is 0 or more.',
                )


def _row_at(settings: Settings, time: datetime) -> int:
    """Return the first row whose timestamp is not before a time."""
    after = time - settings.plan.start
    return max(0, -(-after // timedelta(microseconds=STEP_MICROS)))


def _settings(config: Config) -> Settings:
    parts = int(config.originals.get(_PARTS, "1"))
    plan = Plan(
        schema=parse_ddl(config.get_str("schema"), field="schema"),
        seed=config.get_int("seed"),
        start=_time("start.time", config.get_str("start.time")),
        nulls=config.get_float("null.ratio"),
    )
    return Settings(
        name=config.find_str("generator") or config.originals.get("name", "datagen"),
        plan=plan,
        rows=config.find_int("rows"),
        rate=config.get_float("rate") / parts,
        lane=Lane(int(config.originals.get(_PART, "0")), parts),
        partitions=config.find_int("partitions"),
        bad=config.get_float("bad.ratio"),
        streams=config.get_int("streams"),
        change_after=config.find_int("schema.change.after"),
    )


def _with_amount(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "rows",
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=0)),
            importance=Importance.HIGH,
            doc="How many rows all tasks make together; without end if null.",
            group=_GROUP,
            order=1,
        )
        .define(
            "rate",
            ConfigType.DOUBLE,
            0.0,
            validator=Range(at_least=0),
            importance=Importance.HIGH,
            doc="Rows a second of all tasks together, counted from the start of each task; "
            "what is not used is saved for at most a second. 0 is as fast as asked.",
            group=_GROUP,
            order=2,
        )
        .define(
            "partitions",
            ConfigType.INT,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="Into how many parts a batch is divided; by its size if null.",
            group=_GROUP,
            order=3,
        )
        .define(
            "gear",
            ConfigType.STRING,
            None,
            validator=NullOr(ValidString("frame", "split", "capture")),
            doc="Who makes the rows: frame is Spark's JVM, split is Python in Arrow batches, "
            "capture is Python by records. frame if null, or split for many streams.",
            group=_GROUP,
            order=4,
        )
    )


def _with_shape(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "schema",
            ConfigType.STRING,
            DEFAULT_SCHEMA,
            validator=Lambda(_check_schema, "columns in Spark's DDL"),
            importance=Importance.HIGH,
            doc="The columns, as Spark's DDL.",
            group=_GROUP,
            order=5,
        )
        .define(
            "seed",
            ConfigType.LONG,
            0,
            doc="Another seed gives other values.",
            group=_GROUP,
            order=6,
        )
        .define(
            "start.time",
            ConfigType.STRING,
            "2025-01-01T00:00:00Z",
            validator=Lambda(_check_time, "a time in ISO 8601"),
            doc="The timestamp of the first row, and the first of 365 dates. UTC if it names "
            "no zone.",
            group=_GROUP,
            order=7,
        )
        .define(
            "null.ratio",
            ConfigType.DOUBLE,
            0.0,
            validator=Range(at_least=0, at_most=1),
            doc="The share of nulls in each column that may be null.",
            group=_GROUP,
            order=8,
        )
    )


def _with_tests(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "generator",
            ConfigType.STRING,
            None,
            validator=NonEmptyString(),
            importance=Importance.LOW,
            doc="The generator's name in positions and streams; the connector's if null.",
            group=_GROUP,
            order=9,
        )
        .define(
            "streams",
            ConfigType.INT,
            1,
            validator=Range(at_least=1),
            doc="How many streams the rows are dealt out to, one row each in turn; they are "
            "called by the generator's name, a hyphen and a number from 0.",
            group=_GROUP,
            order=10,
        )
        .define(
            "schema.change.after",
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=0)),
            importance=Importance.LOW,
            doc="From this row on, the rows of all streams have one more column, `added`.",
            group=_GROUP,
            order=11,
        )
        .define(
            "bad.ratio",
            ConfigType.DOUBLE,
            0.0,
            validator=Range(at_least=0, at_most=1),
            importance=Importance.LOW,
            doc="The share of records that are made bad, to try what happens to such.",
            group=_GROUP,
            order=12,
        )
    )


def _check_schema(name: str, value: object) -> None:
    schema = parse_ddl(str(value), field=name)
    for member in schema.fields:
        _check_maps(name, value, member.schema)


def _check_maps(name: str, value: object, schema: Schema) -> None:
    if schema.type is Type.MAP and map_keys(schema.key_schema or Schema.boolean()) is None:
        fix = "Use STRING or a whole number for keys."
        raise invalid(name, value, "Keys of maps must be texts or whole numbers", fix=fix)
    members = [member.schema for member in schema.fields]
    for part in (*members, schema.key_schema, schema.value_schema):
        if part is not None:
            _check_maps(name, value, part)


def _check_time(name: str, value: object) -> None:
    _time(name, value)


def _time(name: str, value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError as error:
        fix = "Write it as 2025-01-31T00:00:00Z."
        raise invalid(name, value, "Not a time", fix=fix) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
