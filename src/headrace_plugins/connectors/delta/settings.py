"""The settings of the Delta source and sink."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    Meaning,
    NullOr,
    Range,
    ValidString,
    invalid,
    setting,
)
from headrace.sdk.folders import check_placeholders, fixed_folder
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.table import Vacuum, check_folder
from headrace_plugins.table_mapping import TableSettings
from headrace_plugins.window import (
    ReplacementSettings,
    WindowSettings,
    kind_of_window,
    only_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Schema
    from headrace_plugins.window import ColumnWindow


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = "latest"
"""The value of starting.version that skips all existing versions."""


def time_of(name: str, value: object) -> int:
    """Return a time in milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError as error:
        problem, fix = "Must be a time", "Write it as 2026-01-31T00:00:00Z."
        raise invalid(name, value, problem, fix=fix) from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _check_time(name: str, value: object) -> None:
    if value is not None:
        time_of(name, value)


def _check_version(name: str, value: object) -> None:
    if value is not None and value != LATEST and not str(value).isdecimal():
        raise invalid(name, value, "Must be a version", fix="Set a number, or latest.")


def _one_of_two(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    for which in ("starting", "ending"):
        if all(props.get(f"{which}.{each}") for each in ("version", "timestamp")):
            yield ConfigError(
                problem=f"{which}.version and {which}.timestamp are both set.",
                fix="Set one of them.",
                field=f"{which}.timestamp",
            )


def _window_of_rows(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    bounds = any(props.get(key) for key in ("window.from", "window.to"))
    if (bounds or props.get("window.kind") == "value") and not props.get("window.column"):
        yield ConfigError(
            problem="A window is set without window.column.",
            fix="Set window.column; or limit the versions by starting.version, "
            "starting.timestamp, ending.version and ending.timestamp.",
            field="window.column",
        )
    if props.get("window.column") and str(props.get("read.change.feed")).lower() == "true":
        yield ConfigError(
            problem="window.column cannot be combined with read.change.feed: a change has a "
            "row before and a row after.",
            fix="Remove window.column, and limit the versions instead.",
            field="window.column",
        )


class SnapshotMode(Enum):
    """Whether a snapshot of the table is read before its changes."""

    INITIAL = "initial"
    NEVER = "never"


class FeedFormat(Enum):
    """The form of the records of a change feed."""

    CHANGE = "change"
    ROW = "row"


class DeltaSourceSettings(WindowSettings, group="Delta"):
    """Settings of the Delta source."""

    rules = (*WindowSettings.rules, _one_of_two, _window_of_rows)

    path: str = setting(
        "The table's folder: a path or a file:/// URL, which driver and executors reach by "
        "the same path.",
        validator=Lambda(check_folder, "a folder"),
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    starting_version: str | None = setting(
        "The first version whose changes are read, or latest for versions committed after the "
        "first start of the task. If neither this nor starting.timestamp is set, the whole "
        "current table is read, then later changes.",
        default=None,
        validator=Lambda(_check_version, "a version or latest"),
        importance=Importance.HIGH,
        group="Reading",
    )
    starting_timestamp: str | None = setting(
        "A time, such as 2026-01-31T00:00:00Z: changes committed at or after this time are "
        "read.",
        default=None,
        validator=Lambda(_check_time, "a time"),
        importance=Importance.HIGH,
        group="Reading",
    )
    snapshot_mode: SnapshotMode | None = setting(
        "initial reads a snapshot of the whole table at starting.version or "
        "starting.timestamp first, then later changes; never reads changes only. If null: "
        "initial if neither setting is set, else never.",
        default=None,
        validator=NullOr(ValidString(*(mode.value for mode in SnapshotMode))),
        group="Reading",
    )
    ending_version: int | None = setting(
        "The last version that is read; the task ends after it. No end if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=0)),
        group="Reading",
    )
    ending_timestamp: str | None = setting(
        "A time: later commits are not read, and the task ends when there is a later commit.",
        default=None,
        validator=Lambda(_check_time, "a time"),
        group="Reading",
    )
    max_files: int = setting(
        "Maximum number of files per batch; a version of a change feed is never split.",
        default=1000,
        validator=Range(at_least=1),
        group="Reading",
    )
    key_fields: tuple[str, ...] = setting(
        "The columns that identify a row; they become the record's key. No key if empty.",
        default=(),
        importance=Importance.HIGH,
        group="Reading",
    )
    read_change_feed: bool = setting(
        "Whether to read insertions, updates and deletions; the table's property "
        "delta.enableChangeDataFeed must be true. Otherwise only appended rows are read.",
        default=False,
        importance=Importance.HIGH,
        group="Changes",
    )
    change_feed_format: FeedFormat = setting(
        "For read.change.feed: change creates one record per change, with before, after, op, "
        "source and ts, for the transform Unwrap; row creates one record per row of Delta's "
        "feed, with _change_type, _commit_version and _commit_timestamp.",
        default=FeedFormat.CHANGE,
        group="Changes",
    )
    skip_change_commits: bool = setting(
        "Without read.change.feed: whether to skip commits that update or delete rows "
        "entirely. Otherwise they are an error.",
        default=False,
        group="Changes",
    )
    ignore_deletes: bool = setting(
        "Without read.change.feed: whether to skip commits that only delete whole files.",
        default=False,
        group="Changes",
    )
    ignore_changes: bool = setting(
        "Without read.change.feed: whether commits that update or delete rows produce all rows "
        "of the rewritten files, including unchanged ones, and deletions are skipped. The "
        "target must tolerate repeated rows.",
        default=False,
        importance=Importance.LOW,
        group="Changes",
    )

    window_kind: str | None = kind_of_window("time", "value", "snapshot")
    time_zone: str = setting(
        "The time zone of the values of window.column that have none.",
        default="UTC",
        group="Window",
    )

    def rows_window(self, schema: Schema) -> ColumnWindow | None:
        """Return the window of rows to read; None for all rows. Raises ConfigError."""
        return self.column_window(schema, self.time_zone, "The table")

    @property
    def takes_snapshot(self) -> bool:
        """Whether the whole table is read first."""
        if self.snapshot_mode is not None:
            return self.snapshot_mode is SnapshotMode.INITIAL
        return self.starting_version is None and self.starting_timestamp is None


TOPIC, TABLE = "${topic}", "${table}"
PLACEHOLDER = re.compile(r"\$\{(?:topic|table)\}")
_FOLDER_NAME = re.compile(r'(?!\.{1,2}$)[\w. "-]+')


def _property(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _check_properties(name: str, value: object) -> None:
    for text in value if isinstance(value, list | tuple) else ():
        if not all(_property(text)):
            raise invalid(name, text, "Must be name=value", fix="Set name=value.")


def _check_target(name: str, value: object) -> None:
    check_folder(name, value)
    check_placeholders(name, str(value), (TOPIC, TABLE))


class DeltaSettings(TableSettings, ReplacementSettings, group="Delta"):
    """Settings of the Delta sink."""

    rules = (*TableSettings.rules, only_with("mode", "append"))

    path: str = setting(
        "The table's folder: a path or a file:/// URL, which driver and executors reach by "
        "the same path. "
        f"{TOPIC} is replaced by the topic, and {TABLE} by the table name that "
        "table.name.format and table.mapping produce, so that each table has its own folder.",
        validator=Lambda(_check_target, "a folder"),
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    mode: str = setting(
        "append adds each record as a row; upsert updates or inserts the row with the key.",
        default="append",
        validator=ValidString("append", "upsert"),
        importance=Importance.HIGH,
    )
    key_fields: tuple[str, ...] = setting(
        "For upsert: the columns that identify a row, taken from the record's key, "
        "or from its value if the key does not have the field. If empty, the fields of the "
        "record's key, else the primary key in the records' schema. A rule of "
        "table.mapping can override them for its table.",
        default=(),
        importance=Importance.HIGH,
    )
    delete_enabled: bool = setting(
        "For upsert: whether a tombstone (a record without a value) deletes the row with its "
        "key. Otherwise a tombstone is an error.",
        default=False,
    )
    merge_spark_threshold_bytes: int = setting(
        "For upsert: if the table's files have at least this size, Spark merges on the "
        "cluster; below it, a single Python worker merges, in a fraction of the time.",
        default=4 * 1024**3,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    partition_by: tuple[str, ...] = setting(
        "Partition columns of a new table: strings, integers, decimals, booleans or dates. An "
        "existing table keeps its own.",
        default=(),
    )
    table_properties: tuple[str, ...] = setting(
        "Properties of a new table, as name=value pairs, such as "
        "delta.enableTypeWidening=true. An existing table keeps its own.",
        default=(),
        validator=Lambda(_check_properties, "name=value pairs"),
        importance=Importance.LOW,
    )
    optimize_interval_commits: int = setting(
        "The number of commits between maintenance runs, which compact small files, write a "
        "checkpoint, and delete files that crashed attempts of the task staged more than "
        "seven days ago; 0 for never.",
        default=100,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    vacuum_tables: Vacuum = setting(
        "The tables in which a maintenance run also deletes replaced files, as VACUUM LITE "
        "does, once the table's delta.deletedFileRetentionDuration has passed: tables that "
        "this sink created (created), all (always) or none (never). Files that the table's "
        "log does not list as removed are never deleted.",
        default=Vacuum.CREATED,
        importance=Importance.LOW,
    )

    @property
    def upsert(self) -> bool:
        """Whether mode is upsert."""
        return self.mode == "upsert"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        return dict(_property(text) for text in self.table_properties)

    @property
    def fixed_folder(self) -> Location:
        """Return the folder that contains the tables of all topics, or the table itself."""
        first = PLACEHOLDER.search(self.path)
        return fixed_folder(Location.of(self.path), first[0] if first else TOPIC)

    def folder(self, topic: str, table: str) -> Location:
        """Return the folder of a table that a topic is written to. Raises ConfigError."""
        for placeholder, name in ((TOPIC, topic), (TABLE, table)):
            if placeholder in self.path and not all(
                _FOLDER_NAME.fullmatch(part) for part in name.split("/")
            ):
                raise ConfigError(
                    problem=f"{name!r} cannot be used as a folder name.",
                    fix="Rename the topic with a transform or the table with table.mapping, or "
                    "remove the placeholder from the path.",
                    field="path",
                )
        place = Location.of(self.path)
        path = place.path.replace(TOPIC, topic).replace(TABLE, table)
        return replace(place, path=path)
