"""The Delta source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import (
    BoundaryKind,
    ConfigError,
    DeliveryGuarantee,
    HeadraceError,
    Position,
    SourceConnector,
)
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.location import Location
from headrace.sdk.tables import TableRows
from headrace_plugins.connectors.delta.frames import columns_of, key_sql, schema_of
from headrace_plugins.connectors.delta.history import CHANGE_FEED, TableHistory
from headrace_plugins.connectors.delta.reader import DeltaReader, too_new
from headrace_plugins.connectors.delta.settings import LATEST, DeltaSourceSettings
from headrace_plugins.window import WINDOW_KEYS, filled_in, followed, require_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Boundaries
    from headrace.sdk.config import Config


def _rows_now(settings: DeltaSourceSettings, spark: SparkSession) -> DataFrame:
    reader = spark.read.format("delta")
    if settings.ending_version is not None:
        reader = reader.option("versionAsOf", settings.ending_version)
    return reader.load(Location.of(settings.path).spark_path)


class DeltaSource(SourceConnector):
    """Reads a Delta table: its current rows, then appended rows.

    It reads what Delta's own streaming source reads, and its settings have the names and the
    meaning of that source's options. A rewrite of the same rows, such as OPTIMIZE, does not
    repeat rows. With ``read.change.feed`` it reads insertions, updates and deletions.

    It can read any table that delta-spark reads, including deletion vectors, column mapping
    and all checkpoint formats. Added columns are part of the next batch. These are errors whose
    message names the fix: renamed or dropped columns, vacuumed files, versions that are no
    longer in the log, and a table that was dropped and created again.

    One task reads a table.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    row_keys = (
        *("key.fields", "read.change.feed", "change.feed.format"),
        *("skip.change.commits", "ignore.deletes", "ignore.changes"),
        *(*WINDOW_KEYS, "time.zone"),
    )
    boundary_kinds = frozenset({BoundaryKind.TIME, BoundaryKind.VALUE, BoundaryKind.SNAPSHOT})

    settings: DeltaSourceSettings

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        settings = DeltaSourceSettings.from_config(config)
        history = TableHistory(Location.of(settings.path))
        try:
            newest = history.newest()
            definition = history.current
        except HeadraceError as error:
            yield ConfigError(problem=error.problem, fix=error.fix, field="path")
            return
        columns = columns_of(definition)
        for look in (
            lambda: settings.rows_window(schema_of(definition)),
            partial(key_sql, columns, settings.key_fields),
        ):
            try:
                look()
            except ConfigError as error:
                yield error
        version, ending = settings.starting_version, settings.ending_version
        first = int(version) if version not in (None, LATEST) else None
        if first is not None and first > newest + (not settings.takes_snapshot):
            yield too_new(newest)
        if first is not None and ending is not None and ending < first:
            yield ConfigError(
                problem=f"Must not be less than starting.version, {first}.",
                fix=f"Set it to {first} or more.",
                field="ending.version",
            )
        if settings.read_change_feed and definition.properties.get(CHANGE_FEED) != "true":
            yield ConfigError(
                problem="The table has no change feed.",
                fix=f"Set its property {CHANGE_FEED} to true; the feed starts at that commit.",
                field="read.change.feed",
            )

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        yield from super().examine(config)
        settings = DeltaSourceSettings.from_config(config)
        history = TableHistory(Location.of(settings.path))
        with suppress(HeadraceError):  # already reported by check
            newest, definition = history.newest(), history.current
            features = definition.protocol.get("readerFeatures") or ()
            with_features = f", features {', '.join(sorted(features))}" if features else ""
            columns = f"version {newest}, {len(definition.fields)} columns{with_features}"
            yield Finding(f"Delta table {settings.path}", Verdict.OK, columns)

    @override
    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows] | None:
        settings = DeltaSourceSettings.from_config(config)
        if settings.read_change_feed:
            return None
        history = TableHistory(Location.of(settings.path))
        history.newest()
        table = TableRows(
            stream=settings.path,
            title=settings.path,
            schema=schema_of(history.current),
            key=settings.key_fields,
            read=partial(_rows_now, settings),
            keyed=bool(settings.key_fields),
        )
        return [table]

    @override
    @classmethod
    def origin(cls, config: Config) -> str:
        return str(Location.of(config.get_str("path")))

    @override
    @classmethod
    def reads(cls, config: Config, target: str) -> bool:
        with suppress(HeadraceError):  # the target is not a folder
            return Location.of(target).resolved() == Location.of(cls.origin(config)).resolved()
        return False

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[DeltaReader]:
        return DeltaReader

    @override
    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        settings = DeltaSourceSettings.from_config(config)
        history = TableHistory(Location.of(settings.path))
        history.newest()
        before = history.version_at(int(time.timestamp() * 1000) - 1)
        offset = {"version": before, "table": history.current.table}
        if (digest := history.digest(before)) is not None:
            offset["commit"] = digest
        return Position.of({"path": settings.path}, offset)

    @override
    @classmethod
    def is_ordered(cls, config: Config) -> bool:
        return DeltaSourceSettings.from_config(config).read_change_feed

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        column = DeltaSourceSettings.from_config(config).window_column
        if boundaries.kind is BoundaryKind.SNAPSHOT:
            return _versions(config, boundaries)
        if boundaries.kind is BoundaryKind.TIME and not column:
            return _committed(config, boundaries)
        require_column(boundaries.kind, column)
        return filled_in(config, boundaries)

    @override
    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        return followed(cls.fill_in_boundaries(config, boundaries))

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        for partition, offset in position.items():
            version, index = offset.get("version"), offset.get("index", 0)
            if (
                set(partition) != {"path"}
                or type(version) is not int
                or version < -1
                or type(index) is not int
                or index < 0
                or any(type(offset.get(name, "")) is not str for name in ("table", "commit"))
            ):
                raise ConfigError(
                    problem=f"Invalid position {dict(partition)} -> {dict(offset)}.",
                    fix='Set {"path": path} and {"version": v}, the last version that counts '
                    "as read; -1 is the beginning.",
                    field="offsets",
                )


_RANGE_KEYS = (
    *("starting.version", "starting.timestamp", "snapshot.mode"),
    *("ending.version", "ending.timestamp"),
)


def _versions(config: Config, boundaries: Boundaries) -> Mapping[str, str]:
    """Return the settings for a range of versions, or for a snapshot if no lower bound is set.

    ``upper`` is exclusive.
    """
    lower, upper = (
        None if text is None else int(text) for text in (boundaries.lower, boundaries.upper)
    )
    for name, version, least in (("lower", lower, 0), ("upper", upper, 1)):
        if version is not None and version < least:
            raise ConfigError(
                problem="The first version of a table is 0.",
                fix=f"Set {least} or more.",
                field=f"boundaries.{name}",
            )
    last = None if upper is None else str(upper - 1)
    return filled_in(
        config,
        replace(boundaries, lower=None, upper=None),
        *_RANGE_KEYS,
        starting_version=last if lower is None else str(lower),
        ending_version=last,
        snapshot_mode="initial" if lower is None else "never",
    )


def _committed(config: Config, boundaries: Boundaries) -> Mapping[str, str]:
    """Return the settings for the versions committed in a window; resolved at the start."""
    lower, upper = (None if at is None else _rounded_up(at) for at in boundaries.times)
    # Delta's commit times are in milliseconds, and ending.timestamp is inclusive.
    last = None if upper is None else (upper - timedelta(milliseconds=1)).isoformat()
    return filled_in(
        config,
        replace(boundaries, lower=None, upper=None),
        *_RANGE_KEYS,
        starting_timestamp=last if lower is None else lower.isoformat(),
        ending_timestamp=last,
        snapshot_mode="initial" if lower is None else "never",
    )


def _rounded_up(at: datetime) -> datetime:
    return at + timedelta(microseconds=-at.microsecond % 1000)
