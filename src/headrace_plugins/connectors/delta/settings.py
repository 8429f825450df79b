"""The settings of the Delta source."""

from __future__ import annotations

from datetime import UTC, datetime
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
    Settings,
    ValidString,
    invalid,
    setting,
)
from headrace_plugins.connectors.delta.table import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    return int(time.timestamp() * 1000)


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


class SnapshotMode(Enum):
    """Whether the table is read as it was, before what came later."""

    INITIAL = "initial"
    NEVER = "never"


class FeedFormat(Enum):
    """What becomes of the rows of a change feed."""

    CHANGE = "change"
    ROW = "row"


class DeltaSourceSettings(Settings, group="Delta"):
    """What a Delta source reads."""

    rules = (_one_of_two,)

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

    @property
    def takes_snapshot(self) -> bool:
        """Whether the whole table is read first."""
        if self.snapshot_mode is not None:
            return self.snapshot_mode is SnapshotMode.INITIAL
        return self.starting_version is None and self.starting_timestamp is None
