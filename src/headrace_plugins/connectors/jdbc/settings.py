"""The settings of the database source."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    NullOr,
    Range,
    invalid,
    setting,
)
from headrace.sdk.jdbc import DriverSettings
from headrace_plugins.databases.address import driver_named
from headrace_plugins.databases.selection import TableSourceSettings
from headrace_plugins.window import WindowSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk.config import Settings  # noqa: F401 - the base of a base


class Mode(Enum):
    """How new rows are distinguished from rows that were already read."""

    BULK = "bulk"
    INCREMENTING = "incrementing"
    TIMESTAMP = "timestamp"
    BOTH = "timestamp+incrementing"


_INCREMENTING = (Mode.INCREMENTING, Mode.BOTH)
_TIMESTAMP = (Mode.TIMESTAMP, Mode.BOTH)


def _columns_of_mode(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    mode = props.get("mode", Mode.BULK.value)
    for key, modes in (
        ("incrementing.column.name", _INCREMENTING),
        ("timestamp.column.name", _TIMESTAMP),
    ):
        wants = mode in {each.value for each in modes}
        if wants and not props.get(key):
            yield ConfigError(
                problem=f"Mode {mode} requires {key}.",
                fix="Set it to a column whose value increases with every new or changed row.",
                field=key,
            )
        if not wants and props.get(key):
            yield ConfigError(
                problem=f"Mode {mode} does not use {key}.",
                fix=f"Set mode to {modes[0].value}, or remove {key}.",
                field=key,
            )


def _what_is_read(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    lists = [key for key in _LISTS if props.get(key)]
    if props.get("query") and lists:
        yield ConfigError(
            problem=f"query and {lists[0]} are both set.",
            fix="Set one of them: a connector reads tables or the rows of one query.",
            field="query",
        )
    for one, other in (_LISTS[:2], _LISTS[2:]):
        if props.get(one) and props.get(other):
            yield ConfigError(
                problem=f"{one} and {other} are both set, but mean the same.",
                fix=f"Set {one} only.",
                field=other,
            )


def _check_zone(name: str, value: object) -> None:
    try:
        ZoneInfo(str(value))
    except (ValueError, OSError, KeyError):
        fix = "Set an IANA time zone, such as Europe/Paris."
        raise invalid(name, value, "Unknown time zone", fix=fix) from None


_LISTS = ("table.include.list", "table.whitelist", "table.exclude.list", "table.blacklist")


def _window_in_bulk(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if not any(props.get(f"window.{name}") for name in ("kind", "from", "to")):
        return
    if not props.get("window.column"):
        yield ConfigError(
            problem="A window is set without window.column.",
            fix="Set window.column.",
            field="window.column",
        )
    is_bulk = (props.get("mode") or Mode.BULK.value) == Mode.BULK.value
    if str(props.get("window.follow")).lower() == "true":
        yield from _followed(props, is_bulk=is_bulk)
    elif not is_bulk:
        yield ConfigError(
            problem="The rows of a window are read once, which requires mode bulk.",
            fix="Set mode to bulk, or remove the window.",
            field="mode",
        )
    if props.get("bulk.interval.ms"):
        yield ConfigError(
            problem="The rows of a window are read only once.",
            fix="Remove bulk.interval.ms, or remove the window.",
            field="bulk.interval.ms",
        )


def _followed(props: Mapping[str, Any], *, is_bulk: bool) -> Iterable[ConfigError]:
    if is_bulk:
        yield ConfigError(
            problem="Mode bulk does not support window.follow.",
            fix="Set mode to timestamp or incrementing, or remove window.follow.",
            field="window.follow",
        )
    for key in ("timestamp.initial", "incrementing.initial"):
        if props.get(key) is not None:
            yield ConfigError(
                problem=f"{key} and a window both define the start.",
                fix="Set one of them.",
                field=key,
            )


class JdbcSourceSettings(TableSourceSettings, DriverSettings, WindowSettings, group="Tables"):
    """Settings of the database source."""

    rules = (
        *(*DriverSettings.rules, *WindowSettings.rules),
        *(driver_named, _columns_of_mode, _what_is_read, _window_in_bulk),
    )

    table_whitelist: tuple[str, ...] = setting(
        "Kafka Connect's older name for table.include.list.", default=()
    )
    table_blacklist: tuple[str, ...] = setting(
        "Kafka Connect's older name for table.exclude.list.", default=()
    )
    query: str | None = setting(
        "A SELECT whose rows are read instead of tables.",
        default=None,
        importance=Importance.HIGH,
    )
    table_poll_interval_ms: int = setting(
        "The interval between checks for new tables, dropped tables and changed columns.",
        default=60_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    mode: Mode = setting(
        "bulk reads whole tables; incrementing reads rows with a larger number than all "
        "earlier rows, "
        "timestamp rows with a later time; timestamp+incrementing uses both to read new and "
        "changed rows.",
        default=Mode.BULK,
        importance=Importance.HIGH,
        group="Mode",
    )
    incrementing_column_name: str | None = setting(
        "The column whose value increases with each new row.",
        default=None,
        importance=Importance.HIGH,
        group="Mode",
    )
    timestamp_column_name: tuple[str, ...] = setting(
        "The column with the time of a row's last change. If several columns are set, the "
        "first one that is not null is used.",
        default=(),
        importance=Importance.HIGH,
        group="Mode",
    )
    db_timezone: str = setting(
        "The time zone of timestamp columns that have none, such as Europe/Paris. It is used "
        "to compare them with the current time, timestamp.initial, and the bounds of a window. "
        "The values in records "
        "are not converted.",
        default="UTC",
        validator=Lambda(_check_zone, "an IANA time zone"),
        group="Mode",
    )
    timestamp_delay_interval_ms: int = setting(
        "The minimum age of a timestamp before its rows are read, by the database's clock. "
        "Rows are "
        "not missed if transactions stay open, or clocks lag behind, for no longer than this.",
        default=0,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        group="Mode",
    )
    timestamp_initial: int | None = setting(
        "The time, in milliseconds since 1970, at which the first read starts, inclusive; -1 "
        "is the time of the start. All rows are read if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=-1)),
        group="Mode",
    )
    incrementing_initial: int | None = setting(
        "The number after which the first read starts, exclusive. All rows are read if null.",
        default=None,
        type=ConfigType.LONG,
        group="Mode",
    )
    validate_non_null: bool = setting(
        "Whether incrementing and timestamp columns must be NOT NULL. A row with a null in "
        "such a column is never read.",
        default=True,
        group="Mode",
    )
    bulk_interval_ms: int | None = setting(
        "In mode bulk, the interval in milliseconds after which a table is read again, also "
        "across restarts. If null, it is read once; to read it again, reset the offsets.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
        group="Mode",
    )
    connections_max: int = setting(
        "Maximum number of connections that read at the same time.",
        default=8,
        validator=Range(at_least=1),
        group="Reading",
    )
    rows_per_second: int | None = setting(
        "Maximum number of rows read per second, by all connections together. No limit if "
        "null.",
        default=None,
        validator=NullOr(Range(at_least=1)),
        group="Reading",
    )

    @property
    @override
    def included(self) -> tuple[str, ...]:
        """The tables to read, from either setting."""
        return self.table_include_list or self.table_whitelist

    @property
    @override
    def excluded(self) -> tuple[str, ...]:
        """The tables to exclude, from either setting."""
        return self.table_exclude_list or self.table_blacklist
