"""The settings of sinks of databases."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Range, Rule, setting
from headrace_plugins.databases.address import ConnectionSettings
from headrace_plugins.replaced_window import ReplacementSettings, only_with
from headrace_plugins.table_mapping import TableSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_KEY = (
    "Give the table key.fields in a rule of table.mapping, leave it out by table.exclude.list "
    "of the source, or set insert.mode to insert. To all tables alike: key.fields."
)
"""What to do about a table that nothing says the key of."""


class Mode(Enum):
    """What a record does in its table."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    REPLACE = "replace"
    SCD2 = "scd2"

    @property
    def is_keyed(self) -> bool:
        """Whether rows are found by their key, so that there is one record for each at most."""
        return self in {Mode.UPSERT, Mode.UPDATE, Mode.SCD2}


class Contract(Enum):
    """What the values of records are."""

    AUTO = "auto"
    ROW = "row"
    CHANGE = "change"


class Deletes(Enum):
    """What becomes of a row that is deleted."""

    HARD = "hard"
    SOFT = "soft"


class SchemaSaveMode(Enum):
    """What is done about the table before its first rows."""

    CREATE = "create_when_not_exist"
    RECREATE = "recreate"
    REQUIRE = "error_when_not_exist"


class DataSaveMode(Enum):
    """What is done about the rows that are there before the first."""

    APPEND = "append"
    DROP = "drop"
    REQUIRE_EMPTY = "error_when_exists"


def _keyed_only(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    mode = props.get("insert.mode", Mode.INSERT.value)
    deletes = str(props.get("delete.enabled")).lower() == "true"
    if deletes and mode not in {each.value for each in Mode if each.is_keyed}:
        yield ConfigError(
            problem=f"In mode {mode} no row is deleted.",
            fix="Set insert.mode to upsert, or leave delete.enabled out.",
            field="delete.enabled",
        )
    if props.get("key.fields") and props.get("pk.fields"):
        yield ConfigError(
            problem="key.fields and pk.fields are both set, and mean the same.",
            fix="Set key.fields only.",
            field="pk.fields",
        )


class TableSinkSettings(ConnectionSettings, TableSettings, ReplacementSettings, group="Tables"):
    """What a sink writes to, and how."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *TableSettings.rules,
        _keyed_only,
        only_with("insert.mode", "insert"),
        only_with("data.save.mode", "append"),
        only_with("schema.save.mode", "create_when_not_exist", "error_when_not_exist"),
    )

    insert_mode: Mode = setting(
        "insert adds each record as a row; upsert replaces the row of the same key or adds "
        "one; "
        "update only replaces; replace puts the records of each batch, or of each reading of a "
        "table, in the place of all rows; scd2 keeps each version of a row with the times "
        "between which it was valid. Changes, as change capture gives them, need upsert, "
        "update or scd2.",
        default=Mode.INSERT,
        importance=Importance.HIGH,
    )
    key_fields: tuple[str, ...] = setting(
        "The columns that identify a row, taken from the record's key, or from its value if "
        "the "
        "key has none of that name. If empty, the fields of the record's key, else the primary "
        "key that the source's table has, else that of the target.",
        default=(),
        importance=Importance.HIGH,
    )
    pk_fields: tuple[str, ...] = setting(
        "Kafka Connect's name of key.fields.", default=(), importance=Importance.LOW
    )
    contract: Contract = setting(
        "What records are: row, or change with before, after and op, as change capture gives "
        "them. auto tells by their fields.",
        default=Contract.AUTO,
    )
    delete_enabled: bool = setting(
        "Whether a tombstone deletes the row of its key. Changes delete rows in any case.",
        default=False,
        importance=Importance.HIGH,
    )
    delete_mode: Deletes = setting(
        "Whether a row that is deleted is removed (hard), or only marked (soft) in the column "
        "soft.delete.column.",
        default=Deletes.HARD,
    )
    soft_delete_column: str = setting(
        "The BOOLEAN column that is true for rows that were deleted, in delete.mode soft.",
        default="deleted",
    )
    valid_from_column: str = setting(
        "For scd2: the column of the time from which on a version is valid.",
        default="valid_from",
    )
    valid_to_column: str = setting(
        "For scd2: the column of the time until which it is valid; null while it is.",
        default="valid_to",
    )
    current_column: str = setting(
        "For scd2: the BOOLEAN column that is true for the version that is valid.",
        default="is_current",
    )
    schema_save_mode: SchemaSaveMode = setting(
        "What is done about a table before the connector's first rows: create it where it is "
        "missing, drop and create it (recreate), or fail where it is missing.",
        default=SchemaSaveMode.CREATE,
        group="Save modes",
    )
    data_save_mode: DataSaveMode = setting(
        "What is done about the rows that a table has before the connector's first: keep them "
        "(append), delete them (drop), or fail if there are any.",
        default=DataSaveMode.APPEND,
        group="Save modes",
    )
    connections_max: int = setting(
        "The most connections that write at a time.",
        default=8,
        validator=Range(at_least=1),
        group="Writing",
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The configured columns of the key."""
        return self.key_fields or self.pk_fields
