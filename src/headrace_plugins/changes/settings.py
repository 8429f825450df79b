"""The settings shared by change sources; their names are Debezium's."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    NullOr,
    Range,
    Rule,
    ValidString,
    setting,
)
from headrace_plugins.databases.selection import Selection, TableSourceSettings
from headrace_plugins.window import BoundSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace_plugins.databases.database import Database


class SnapshotMode(Enum):
    """Whether the rows of tables are read before their changes."""

    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    WHEN_NEEDED = "when_needed"

    @property
    def follows(self) -> bool:
        """Whether the log is read, so the server must retain it."""
        return self is not SnapshotMode.INITIAL_ONLY


_COLUMNS = "Exclude columns with the transform ReplaceField"
_TABLES = "Set table.include.list or table.exclude.list, as in sales.*"
_TYPES = "Remove it: values keep their column types. Convert them with the transform Cast"
_INSTEAD: Mapping[str, str] = {
    "column.include.list": _COLUMNS,
    "column.exclude.list": _COLUMNS,
    "schema.include.list": _TABLES,
    "schema.exclude.list": _TABLES,
    "database.include.list": _TABLES,
    "database.exclude.list": _TABLES,
    "snapshot.include.collection.list": "Pause tables with snapshot.paused.list",
    "snapshot.select.statement.overrides": "Exclude rows with the transform Filter",
    "skipped.operations": "Exclude changes with the transform Filter",
    "message.key.columns": "Set key.fields or table.mapping of the sink",
    "binary.handling.mode": _TYPES,
    "bigint.unsigned.handling.mode": _TYPES,
    "decimal.handling.mode": _TYPES,
    "hstore.handling.mode": _TYPES,
    "interval.handling.mode": _TYPES,
    "time.precision.mode": _TYPES,
    "topic.naming.strategy": "Rename topics with the transform RegexRouter",
}
"""The fixes for unsupported Debezium keys that change the records."""
_PREFIXES: Mapping[str, str] = {
    "column.mask.": "Hide values with the transform MaskField",
    "column.truncate.": "Shorten values with the transform Sql",
    "column.propagate.": "Remove it",
}
"""The same by key prefix."""


def _changing_keys(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error for each unsupported Debezium key that changes the records.

    The server ignores unknown keys, as Kafka Connect does. A key that excludes columns, masks
    values or changes their types must not be ignored.
    """
    for key in sorted(props):
        beginnings = (fix for prefix, fix in _PREFIXES.items() if key.startswith(prefix))
        fix = _INSTEAD.get(key) or next(beginnings, None)
        if fix is not None:
            yield ConfigError(
                problem=f"Headrace does not support Debezium's {key}, and ignoring it would "
                "change the records.",
                fix=f"{fix}.",
                field=key,
            )


def _window_of_rows(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error for a window with a snapshot, whose rows have no place in the log."""
    mode = props.get("snapshot.mode") or SnapshotMode.INITIAL.value
    if mode != SnapshotMode.NO_DATA.value and any(
        map(props.get, BoundSettings.config_def().keys)
    ):
        yield ConfigError(
            problem="A window cannot include a snapshot of the tables.",
            fix=f"Set snapshot.mode to {SnapshotMode.NO_DATA.value}.",
            field="snapshot.mode",
        )


class ChangeSettings(TableSourceSettings, BoundSettings, group="Tables"):
    """The tables to follow, and how to read them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *TableSourceSettings.rules,
        *BoundSettings.rules,
        _changing_keys,
        _window_of_rows,
    )

    window_kind: str | None = setting(
        "The kind of window.from and window.to: times with a zone, such as "
        "2026-01-31T00:00:00Z, or positions of the source as JSON (offset). The source ends at "
        "window.to; without it, the source continues with new changes. time if null.",
        default=None,
        validator=NullOr(ValidString("time", "offset")),
        group="Window",
    )

    table_poll_interval_ms: int = setting(
        "Interval of checks for new tables.",
        default=10_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    snapshot_mode: SnapshotMode = setting(
        "initial reads each table once and then follows its changes; initial_only ends when "
        "all tables are read, and requires neither the log nor a slot; no_data only follows "
        "changes, from the start of the connector; "
        "when_needed is like initial, but reads all tables again if the log has lost unread "
        "changes.",
        default=SnapshotMode.INITIAL,
        importance=Importance.HIGH,
        group="Snapshot",
    )
    snapshot_paused_list: tuple[str, ...] = setting(
        "Tables whose snapshot is paused. Changes of tables that are already read continue. "
        "Same format as table.include.list.",
        default=(),
        group="Snapshot",
    )
    snapshot_batch_rows: int = setting(
        "Approximate number of snapshot rows in a batch. After a restart the snapshot "
        "continues after the last batch.",
        default=10_000_000,
        validator=Range(at_least=1),
        group="Snapshot",
    )
    snapshot_max_threads: int = setting(
        "Maximum number of concurrent connections that read tables.",
        default=8,
        validator=Range(at_least=1),
        group="Snapshot",
    )
    snapshot_rows_per_second: int | None = setting(
        "Maximum snapshot rows per second. No limit if null.",
        default=None,
        group="Snapshot",
    )
    max_queue_size_in_bytes: int = setting(
        "Maximum bytes of changes read ahead of the batches, in files. A transaction may be "
        "larger.",
        default=512 << 20,
        type=ConfigType.LONG,
        validator=Range(at_least=1 << 20),
        group="Log",
    )
    heartbeat_interval_ms: int = setting(
        "Minimum interval at which the position advances while the followed tables do not "
        "change, so that the server need not retain the log of other tables.",
        default=60_000,
        type=ConfigType.LONG,
        validator=Range(at_least=1),
        group="Log",
    )


def paused_tables(settings: ChangeSettings, database: Database) -> Selection | None:
    """Return the selection of paused tables; None if no table is paused."""
    paused = settings.snapshot_paused_list
    if not paused:
        return None
    return Selection(paused, (), database.default_schema, field="snapshot.paused.list")
