"""The settings of the source of databases."""

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
from headrace_plugins.databases.drivers import driver_named
from headrace_plugins.databases.source_settings import TableSourceSettings
from headrace_plugins.window import WindowSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk.config import Settings  # noqa: F401 - the base of a base


class Mode(Enum):
    """How new rows are told from those that were read."""

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
                problem=f"The mode {mode} needs the name of its column.",
                fix="Name the column that every new or changed row has a larger value in.",
                field=key,
            )
        if not wants and props.get(key):
            yield ConfigError(
                problem=f"It is set, and the mode is {mode}.",
                fix=f"Set mode to {modes[0].value}, or leave {key} out.",
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
                problem=f"{one} and {other} are both set, and mean the same.",
                fix=f"Set {one} only.",
                field=other,
            )


def _check_zone(name: str, value: object) -> None:
    try:
        ZoneInfo(str(value))
    except (ValueError, OSError, KeyError):
        fix = "Name one of the IANA's zones, such as Europe/Paris."
        raise invalid(name, value, "Unknown time zone", fix=fix) from None


_LISTS = ("table.include.list", "table.whitelist", "table.exclude.list", "table.blacklist")


def _window_in_bulk(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if not any(props.get(f"window.{name}") for name in ("kind", "from", "to")):
        return
    if not props.get("window.column"):
        yield ConfigError(
            problem="A window is set, and no column is named whose values are in it.",
            fix="Name it.",
            field="window.column",
        )
    is_bulk = (props.get("mode") or Mode.BULK.value) == Mode.BULK.value
    if str(props.get("window.follow")).lower() == "true":
        yield from _followed(props, is_bulk=is_bulk)
    elif not is_bulk:
        yield ConfigError(
            problem="The rows of a window are read once, as a whole.",
            fix="Set mode to bulk, or set no window.",
            field="mode",
        )
    if props.get("bulk.interval.ms"):
        yield ConfigError(
            problem="The rows of a window are read once.",
            fix="Leave it out, or set no window.",
            field="bulk.interval.ms",
        )


def _followed(props: Mapping[str, Any], *, is_bulk: bool) -> Iterable[ConfigError]:
    if is_bulk:
        yield ConfigError(
            problem="In mode bulk nothing is followed.",
            fix="Set mode to timestamp or incrementing, or leave window.follow out.",
            field="window.follow",
        )
    for key in ("timestamp.initial", "incrementing.initial"):
        if props.get(key) is not None:
            yield ConfigError(
                problem=f"{key} and a window each say where to begin.",
                fix="Set one of them.",
                field=key,
            )


class JdbcSourceSettings(TableSourceSettings, DriverSettings, WindowSettings, group="Tables"):
    """What is read of a database."""

    rules = (
        *(*DriverSettings.rules, *WindowSettings.rules),
        *(driver_named, _columns_of_mode, _what_is_read, _window_in_bulk),
    )

    table_whitelist: tuple[str, ...] = setting(
        "Kafka Connect's older name of table.include.list.", default=()
    )
    table_blacklist: tuple[str, ...] = setting(
        "Kafka Connect's older name of table.exclude.list.", default=()
    )
    query: str | None = setting(
        "A SELECT whose rows are read instead of tables.",
        default=None,
        importance=Importance.HIGH,
    )
    table_poll_interval_ms: int = setting(
        "How often it is looked whether tables are new or gone, or have other columns.",
        default=60_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    mode: Mode = setting(
        "bulk reads whole tables; incrementing reads rows with a larger number than any "
        "before, "
        "timestamp those with a later time, and timestamp+incrementing both: rows that are new "
        "and rows that were changed.",
        default=Mode.BULK,
        importance=Importance.HIGH,
        group="Mode",
    )
    incrementing_column_name: str | None = setting(
        "The column that grows with each new row.",
        default=None,
        importance=Importance.HIGH,
        group="Mode",
    )
    timestamp_column_name: tuple[str, ...] = setting(
        "The column that has the time of a row's last change. Of several the first that is not "
        "null counts.",
        default=(),
        importance=Importance.HIGH,
        group="Mode",
    )
    db_timezone: str = setting(
        "The zone of times in timestamp columns that have none, such as Europe/Paris: with "
        "them the time of now is compared, timestamp.initial, and the times of a window. "
        "Records keep such times as "
        "they are.",
        default="UTC",
        validator=Lambda(_check_zone, "a time zone of the IANA"),
        group="Mode",
    )
    timestamp_delay_interval_ms: int = setting(
        "How old a time must be before its rows are read, by the database's clock: "
        "transactions "
        "that are open for so long are not missed, nor clocks that are behind by so much.",
        default=0,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        group="Mode",
    )
    timestamp_initial: int | None = setting(
        "The time, in milliseconds since 1970, from which on rows are read at first, those of "
        "that very time too; -1 is the time of the start. All if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=-1)),
        group="Mode",
    )
    incrementing_initial: int | None = setting(
        "The number behind which rows are read at first. All if null.",
        default=None,
        type=ConfigType.LONG,
        group="Mode",
    )
    validate_non_null: bool = setting(
        "Whether incrementing and timestamp columns must be NOT NULL. A row with a null there "
        "is never read.",
        default=True,
        group="Mode",
    )
    bulk_interval_ms: int | None = setting(
        "In mode bulk, after how many milliseconds a table is read again, through restarts "
        "too. It is read once if null; to read it again, reset the connector's offsets.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
        group="Mode",
    )
    connections_max: int = setting(
        "The most connections that read at a time.",
        default=8,
        validator=Range(at_least=1),
        group="Reading",
    )
    rows_per_second: int | None = setting(
        "The most rows that are read in a second, by all connections together. No limit if "
        "null.",
        default=None,
        validator=NullOr(Range(at_least=1)),
        group="Reading",
    )

    @property
    @override
    def included(self) -> tuple[str, ...]:
        """The tables that are read, by either key."""
        return self.table_include_list or self.table_whitelist

    @property
    @override
    def excluded(self) -> tuple[str, ...]:
        """The tables that are not, by either key."""
        return self.table_exclude_list or self.table_blacklist
