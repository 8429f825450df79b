"""The settings of database sinks."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Range, Rule, setting
from headrace_plugins.databases.address import ConnectionSettings
from headrace_plugins.table_mapping import TableSettings
from headrace_plugins.window import ReplacementSettings, only_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_KEY = (
    "Set key.fields for the table in a rule of table.mapping, exclude it with the source's "
    "table.exclude.list, or set insert.mode to insert. For all tables: set key.fields."
)
"""The fix for a table without a known key."""


class Mode(Enum):
    """How records are written to their table."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    REPLACE = "replace"
    SCD2 = "scd2"

    @property
    def is_keyed(self) -> bool:
        """Whether rows are matched by key, so a batch has at most one record per key."""
        return self in {Mode.UPSERT, Mode.UPDATE, Mode.SCD2}


class Contract(Enum):
    """The kind of the records' values."""

    AUTO = "auto"
    ROW = "row"
    CHANGE = "change"


class Deletes(Enum):
    """How rows are deleted."""

    HARD = "hard"
    SOFT = "soft"


class SchemaSaveMode(Enum):
    """The handling of the table before the first write."""

    CREATE = "create_when_not_exist"
    RECREATE = "recreate"
    REQUIRE = "error_when_not_exist"


class DataSaveMode(Enum):
    """The handling of existing rows before the first write."""

    APPEND = "append"
    DROP = "drop"
    REQUIRE_EMPTY = "error_when_exists"


def _keyed_only(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    mode = props.get("insert.mode", Mode.INSERT.value)
    deletes = str(props.get("delete.enabled")).lower() == "true"
    if deletes and mode not in {each.value for each in Mode if each.is_keyed}:
        yield ConfigError(
            problem=f"insert.mode {mode} does not support deletes.",
            fix="Set insert.mode to upsert, or remove delete.enabled.",
            field="delete.enabled",
        )
    if props.get("key.fields") and props.get("pk.fields"):
        yield ConfigError(
            problem="key.fields and pk.fields are both set, but are aliases.",
            fix="Set key.fields only.",
            field="pk.fields",
        )


class TableSinkSettings(ConnectionSettings, TableSettings, ReplacementSettings, group="Tables"):
    """The tables of a sink, and how they are written."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *TableSettings.rules,
        _keyed_only,
        only_with("insert.mode", "insert"),
        only_with("data.save.mode", "append"),
        only_with("schema.save.mode", "create_when_not_exist", "error_when_not_exist"),
    )

    insert_mode: Mode = setting(
        "insert appends each record as a row; upsert updates the row with the same key or "
        "inserts one; "
        "update only updates; replace overwrites all rows with the records of each batch, or "
        "of each full read of a table; scd2 keeps every version of a row with its validity "
        "period. Change records, as from change data capture, require upsert, update or scd2.",
        default=Mode.INSERT,
        importance=Importance.HIGH,
    )
    key_fields: tuple[str, ...] = setting(
        "The columns that identify a row, taken from the record's key, or from its value if "
        "the "
        "key has no such field. If empty: the fields of the record's key, else the primary key "
        "of the source's table, else that of the target.",
        default=(),
        importance=Importance.HIGH,
    )
    pk_fields: tuple[str, ...] = setting(
        "Kafka Connect's name for key.fields.", default=(), importance=Importance.LOW
    )
    contract: Contract = setting(
        "The format of records: row, or change with before, after and op, as from change data "
        "capture. auto detects it from the fields.",
        default=Contract.AUTO,
    )
    delete_enabled: bool = setting(
        "Whether a tombstone deletes the row of its key. Change records always delete rows.",
        default=False,
        importance=Importance.HIGH,
    )
    delete_mode: Deletes = setting(
        "Whether a deleted row is removed (hard) or only marked (soft) in soft.delete.column.",
        default=Deletes.HARD,
    )
    soft_delete_column: str = setting(
        "For delete.mode soft: the BOOLEAN column that is true for deleted rows.",
        default="deleted",
    )
    valid_from_column: str = setting(
        "For scd2: the column with the start of a version's validity.",
        default="valid_from",
    )
    valid_to_column: str = setting(
        "For scd2: the column with the end of a version's validity; null for the current one.",
        default="valid_to",
    )
    current_column: str = setting(
        "For scd2: the BOOLEAN column that is true for the current version.",
        default="is_current",
    )
    schema_save_mode: SchemaSaveMode = setting(
        "Handling of a table before the connector's first write: create it if missing "
        "(create_when_not_exist), drop and create it (recreate), or fail if missing "
        "(error_when_not_exist).",
        default=SchemaSaveMode.CREATE,
        group="Save modes",
    )
    data_save_mode: DataSaveMode = setting(
        "Handling of existing rows before the connector's first write: keep them (append), "
        "delete them (drop), or fail if there are any (error_when_exists).",
        default=DataSaveMode.APPEND,
        group="Save modes",
    )
    connections_max: int = setting(
        "Maximum number of concurrent connections that write.",
        default=8,
        validator=Range(at_least=1),
        group="Writing",
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The configured key columns."""
        return self.key_fields or self.pk_fields
