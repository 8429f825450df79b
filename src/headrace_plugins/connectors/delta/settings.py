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
from headrace_plugins.replaced_window import ReplacementSettings, only_with
from headrace_plugins.table_mapping import TableSettings
from headrace_plugins.window import WindowSettings, kind_of_window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Schema
    from headrace_plugins.window import ColumnWindow


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = "latest"
"""Where to start, instead of a number: behind what is there."""


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
        raise invalid(name, value, "Must be a version", fix="Write a number, or latest.")


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
            problem="A window is set, and no column is named whose values are in it.",
            fix="Set window.column; or read versions by starting.version, starting.timestamp, "
            "ending.version and ending.timestamp.",
            field="window.column",
        )
    if props.get("window.column") and str(props.get("read.change.feed")).lower() == "true":
        yield ConfigError(
            problem="A change has a row before and a row after, and is in no window of rows.",
            fix="Leave window.column out, and read the changes of versions.",
            field="window.column",
        )


class SnapshotMode(Enum):
    """Whether the table is read as it was, before what came later."""

    INITIAL = "initial"
    NEVER = "never"


class FeedFormat(Enum):
    """What becomes of the rows of a change feed."""

    CHANGE = "change"
    ROW = "row"


class DeltaSourceSettings(WindowSettings, group="Delta"):
    """What a Delta source reads."""

    rules = (*WindowSettings.rules, _one_of_two, _window_of_rows)

    path: str = setting(
        "The table's folder: a path or a file:/// URL, which driver and executors reach by "
        "the same path.",
        validator=Lambda(check_folder, "a folder"),
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    starting_version: str | None = setting(
        "The first version whose changes are read, or latest for those that come after the "
        "task was started first. The whole table as it is then, and what comes later, if "
        "neither this nor starting.timestamp is set.",
        default=None,
        validator=Lambda(_check_version, "a version or latest"),
        importance=Importance.HIGH,
        group="Reading",
    )
    starting_timestamp: str | None = setting(
        "A time, such as 2026-01-31T00:00:00Z: changes are read that were committed then or "
        "later.",
        default=None,
        validator=Lambda(_check_time, "a time"),
        importance=Importance.HIGH,
        group="Reading",
    )
    snapshot_mode: SnapshotMode | None = setting(
        "initial reads the whole table first, as it was at starting.version or at "
        "starting.timestamp, and then what came later; never reads changes only. initial if "
        "null and nothing says where to start, else never.",
        default=None,
        validator=NullOr(ValidString(*(mode.value for mode in SnapshotMode))),
        group="Reading",
    )
    ending_version: int | None = setting(
        "The last version that is read; the task ends there. No end if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=0)),
        group="Reading",
    )
    ending_timestamp: str | None = setting(
        "A time: what was committed later is not read, and the task ends when there is such a "
        "commit.",
        default=None,
        validator=Lambda(_check_time, "a time"),
        group="Reading",
    )
    max_files: int = setting(
        "The most files of a batch; a version of a change feed is read as a whole.",
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
        "Whether insertions, updates and deletions are read, of a table whose property "
        "delta.enableChangeDataFeed is true. Otherwise rows are read that were appended.",
        default=False,
        importance=Importance.HIGH,
        group="Changes",
    )
    change_feed_format: FeedFormat = setting(
        "For read.change.feed: change gives a record for each change, with before, after, op, "
        "source and ts, for the transform Unwrap; row gives the feed's rows as Delta has them, "
        "with _change_type, _commit_version and _commit_timestamp.",
        default=FeedFormat.CHANGE,
        group="Changes",
    )
    skip_change_commits: bool = setting(
        "Without read.change.feed: whether commits that update or delete rows are passed over "
        "as wholes. Otherwise they are an error.",
        default=False,
        group="Changes",
    )
    ignore_deletes: bool = setting(
        "Without read.change.feed: whether commits that only delete whole files are passed "
        "over.",
        default=False,
        group="Changes",
    )
    ignore_changes: bool = setting(
        "Without read.change.feed: whether commits that update or delete rows give all rows of "
        "the files that they have rewritten, unchanged ones too, and deletions are passed "
        "over. The target has to bear repeated rows.",
        default=False,
        importance=Importance.LOW,
        group="Changes",
    )

    window_kind: str | None = kind_of_window("time", "value", "snapshot")
    time_zone: str = setting(
        "The zone of the times of window.column where they have none.",
        default="UTC",
        group="Window",
    )

    def rows_window(self, schema: Schema) -> ColumnWindow | None:
        """Return which rows are read; None where all are. Raises ConfigError."""
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
            raise invalid(name, text, "Must be name=value", fix="Write name=value.")


def _check_target(name: str, value: object) -> None:
    check_folder(name, value)
    check_placeholders(name, str(value), (TOPIC, TABLE))


class DeltaSettings(TableSettings, ReplacementSettings, group="Delta"):
    """What a Delta sink writes to, and how."""

    rules = (*TableSettings.rules, only_with("mode", "append"))

    path: str = setting(
        "The table's folder: a path or a file:/// URL, which driver and executors reach by "
        "the same path. "
        f"{TOPIC} in it stands for the topic, and {TABLE} for the table that "
        "table.name.format and table.mapping give it, for a table each.",
        validator=Lambda(_check_target, "a folder"),
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    mode: str = setting(
        "append adds each record as a row; upsert replaces the row of the same key.",
        default="append",
        validator=ValidString("append", "upsert"),
        importance=Importance.HIGH,
    )
    key_fields: tuple[str, ...] = setting(
        "For upsert: the columns that identify a row, taken from the record's key, "
        "or from its value if the key has none of that name. If empty, the fields of the "
        "record's key, else the primary key that came with the rows. A rule of "
        "table.mapping may name others for its table.",
        default=(),
        importance=Importance.HIGH,
    )
    delete_enabled: bool = setting(
        "For upsert: whether a record without a value deletes the row of its key. "
        "Otherwise such a record is an error.",
        default=False,
    )
    merge_spark_threshold_bytes: int = setting(
        "For upsert: from this size of the table's files on, the cluster merges; below "
        "it, a single Python worker does, in a fraction of the time.",
        default=4 * 1024**3,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    partition_by: tuple[str, ...] = setting(
        "Columns that a new table is divided by: texts, whole numbers, decimals, "
        "booleans or dates. A table that exists keeps its own.",
        default=(),
    )
    table_properties: tuple[str, ...] = setting(
        "Properties of a new table, as name=value pairs, such as "
        "delta.enableTypeWidening=true. A table that exists keeps its own.",
        default=(),
        validator=Lambda(_check_properties, "name=value pairs"),
        importance=Importance.LOW,
    )
    optimize_interval_commits: int = setting(
        "After how many commits small files are joined, a checkpoint is written, and "
        "what crashed attempts of the task staged more than seven days ago is deleted; 0 "
        "is never.",
        default=100,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    vacuum_tables: Vacuum = setting(
        "At the same time, in which tables files are deleted that newer versions have "
        "replaced, once the table's delta.deletedFileRetentionDuration has passed, as "
        "VACUUM LITE does: those that this sink has created, always or never. Files that "
        "the table's log does not name as replaced are never deleted.",
        default=Vacuum.CREATED,
        importance=Importance.LOW,
    )

    @property
    def upsert(self) -> bool:
        """Whether records replace the rows of their keys."""
        return self.mode == "upsert"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        return dict(_property(text) for text in self.table_properties)

    @property
    def fixed_folder(self) -> Location:
        """Return the folder that holds the tables of all topics, or the table itself."""
        first = PLACEHOLDER.search(self.path)
        return fixed_folder(Location.of(self.path), first[0] if first else TOPIC)

    def folder(self, topic: str, table: str) -> Location:
        """Return the folder of a table that a topic's records go to."""
        for placeholder, name in ((TOPIC, topic), (TABLE, table)):
            if placeholder in self.path and not all(
                _FOLDER_NAME.fullmatch(part) for part in name.split("/")
            ):
                raise ConfigError(
                    problem=f"{name!r} cannot be part of a folder's name.",
                    fix="Rename it with a transform or with table.mapping, or write it to "
                    "another path.",
                    field="path",
                )
        place = Location.of(self.path)
        path = place.path.replace(TOPIC, topic).replace(TABLE, table)
        return replace(place, path=path)
