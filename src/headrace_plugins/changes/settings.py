"""The settings that sources of changes share; their names are Debezium's."""

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
from headrace_plugins.databases.selection import Selection
from headrace_plugins.databases.source_settings import TableSourceSettings
from headrace_plugins.window import BoundSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace_plugins.databases.database import Database


class SnapshotMode(Enum):
    """Whether tables are read before their changes are followed."""

    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    WHEN_NEEDED = "when_needed"

    @property
    def follows(self) -> bool:
        """Whether the log is read, so that the server has to keep it."""
        return self is not SnapshotMode.INITIAL_ONLY


_COLUMNS = "Leave columns out by the transform ReplaceField"
_TABLES = "Name the tables in table.include.list or table.exclude.list, as in sales.*"
_TYPES = "Leave it out: values keep the types of their columns. The transform Cast makes others"
_INSTEAD: Mapping[str, str] = {
    "column.include.list": _COLUMNS,
    "column.exclude.list": _COLUMNS,
    "schema.include.list": _TABLES,
    "schema.exclude.list": _TABLES,
    "database.include.list": _TABLES,
    "database.exclude.list": _TABLES,
    "snapshot.include.collection.list": "Hold tables back by snapshot.paused.list",
    "snapshot.select.statement.overrides": "Leave rows out by the transform Filter",
    "skipped.operations": "Leave changes out by the transform Filter",
    "message.key.columns": "Set key.fields or table.mapping of the sink",
    "binary.handling.mode": _TYPES,
    "bigint.unsigned.handling.mode": _TYPES,
    "decimal.handling.mode": _TYPES,
    "hstore.handling.mode": _TYPES,
    "interval.handling.mode": _TYPES,
    "time.precision.mode": _TYPES,
    "topic.naming.strategy": "Rename topics by the transform RegexRouter",
}
"""What to do, by the key that would change what arrives."""
_PREFIXES: Mapping[str, str] = {
    "column.mask.": "Hide values by the transform MaskField",
    "column.truncate.": "Shorten values by the transform Sql",
    "column.propagate.": "Leave it out",
}
"""The same by what keys begin with."""


def _changing_keys(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error for each key of Debezium that would change what arrives.

    A server passes keys over that nobody defines, as Kafka Connect does. One that leaves out
    columns, hides values or makes other types of them must not be.
    """
    for key in sorted(props):
        beginnings = (fix for prefix, fix in _PREFIXES.items() if key.startswith(prefix))
        fix = _INSTEAD.get(key) or next(beginnings, None)
        if fix is not None:
            yield ConfigError(
                problem=f"Headrace does not have {key}, a key of Debezium without which "
                "something else would arrive.",
                fix=f"{fix}.",
                field=key,
            )


def _window_of_rows(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error for a window with rows of tables, which are of no place in the log."""
    mode = props.get("snapshot.mode") or SnapshotMode.INITIAL.value
    if mode != SnapshotMode.NO_DATA.value and any(
        map(props.get, BoundSettings.config_def().keys)
    ):
        yield ConfigError(
            problem="A window has the changes that lie in it, and not what tables hold.",
            fix=f"Set it to {SnapshotMode.NO_DATA.value}.",
            field="snapshot.mode",
        )


class ChangeSettings(TableSourceSettings, BoundSettings, group="Tables"):
    """What is followed of a database, and how."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *TableSourceSettings.rules,
        *BoundSettings.rules,
        _changing_keys,
        _window_of_rows,
    )

    window_kind: str | None = setting(
        "What window.from and window.to are: times with a zone, such as 2026-01-31T00:00:00Z, "
        "or positions of the source, as JSON (offset). The source ends at window.to; without "
        "it what comes is read too. time if null.",
        default=None,
        validator=NullOr(ValidString("time", "offset")),
        group="Window",
    )

    table_poll_interval_ms: int = setting(
        "How often it is looked whether there are new tables.",
        default=10_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    snapshot_mode: SnapshotMode = setting(
        "initial reads each table once, and then follows its changes; initial_only ends when "
        "all are read, and needs neither the log nor a slot; no_data follows changes only, "
        "from the start of the connector on; "
        "when_needed is initial, and reads all tables again when the log has lost changes that "
        "were not read.",
        default=SnapshotMode.INITIAL,
        importance=Importance.HIGH,
        group="Snapshot",
    )
    snapshot_paused_list: tuple[str, ...] = setting(
        "The tables whose rows are not read for now, while the changes of those that were read "
        "go on; written like table.include.list.",
        default=(),
        group="Snapshot",
    )
    snapshot_batch_rows: int = setting(
        "About how many rows of tables are read in one batch: after a restart it goes on "
        "behind the last.",
        default=10_000_000,
        validator=Range(at_least=1),
        group="Snapshot",
    )
    snapshot_max_threads: int = setting(
        "The most connections that read tables at a time.",
        default=8,
        validator=Range(at_least=1),
        group="Snapshot",
    )
    snapshot_rows_per_second: int | None = setting(
        "The most rows of tables that are read in a second. No limit if null.",
        default=None,
        group="Snapshot",
    )
    max_queue_size_in_bytes: int = setting(
        "How many bytes of changes may be read ahead of the batches, in files. A transaction "
        "may be larger.",
        default=512 << 20,
        type=ConfigType.LONG,
        validator=Range(at_least=1 << 20),
        group="Log",
    )
    heartbeat_interval_ms: int = setting(
        "How often at the most the position moves on while nothing is changed in the tables "
        "that are followed, so that the server need not keep what others write to its log.",
        default=60_000,
        type=ConfigType.LONG,
        validator=Range(at_least=1),
        group="Log",
    )


def paused_tables(settings: ChangeSettings, database: Database) -> Selection | None:
    """Return which tables are not read for now; None for none."""
    paused = settings.snapshot_paused_list
    if not paused:
        return None
    return Selection(paused, (), database.default_schema, field="snapshot.paused.list")
