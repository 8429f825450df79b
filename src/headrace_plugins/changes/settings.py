"""The settings that sources of changes share; their names are Debezium's."""

from __future__ import annotations

from enum import Enum

from headrace.sdk.config import ConfigType, Importance, Range, setting
from headrace_plugins.databases.address import ConnectionSettings


class SnapshotMode(Enum):
    """Whether tables are read before their changes are followed."""

    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    WHEN_NEEDED = "when_needed"


class InvalidValues(Enum):
    """What becomes of a value that its schema has nothing for."""

    REJECT = "reject"
    NULL = "null"


class ChangeSettings(ConnectionSettings, group="Tables"):
    """What is followed of a database, and how."""

    table_include_list: tuple[str, ...] = setting(
        "The tables that are followed, as table or schema.table; * stands for any signs and ? "
        'for one, and a part with a dot in it is in quotes, as in "a.b". All tables that the '
        "user may read if empty.",
        default=(),
        importance=Importance.HIGH,
    )
    table_exclude_list: tuple[str, ...] = setting(
        "The tables that are not followed, of those that would be; written like "
        "table.include.list.",
        default=(),
        importance=Importance.HIGH,
    )
    topic_prefix: str = setting(
        "What stands before the name of a table in the name of its topic.", default=""
    )
    table_poll_interval_ms: int = setting(
        "How often it is looked whether there are new tables.",
        default=10_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    snapshot_mode: SnapshotMode = setting(
        "initial reads each table once, and then follows its changes; initial_only ends when "
        "all are read; no_data follows changes only, from the start of the connector on; "
        "when_needed is initial, and reads all tables again when the log has lost changes that "
        "were not read.",
        default=SnapshotMode.INITIAL,
        importance=Importance.HIGH,
        group="Snapshot",
    )
    snapshot_batch_rows: int = setting(
        "About how many rows of tables are read in one batch: after a restart it goes on "
        "behind the last.",
        default=2_000_000,
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
    split_rows: int = setting(
        "About how many rows are read by one query of those that read a table side by side.",
        default=500_000,
        validator=Range(at_least=1000),
        group="Snapshot",
    )
    invalid_values: InvalidValues = setting(
        "What becomes of a value that its type in Headrace has nothing for, such as an "
        "infinite date: reject makes the change a bad record, null makes the value null.",
        default=InvalidValues.REJECT,
        group="Log",
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
