"""What the keys of windows mean, and which windows sources refuse."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.connector_settings import source_def
from headrace.sdk import Boundaries, BoundaryKind, ConfigError, Schema, SourceConnector
from headrace.sdk.config import Config
from headrace.sdk.errors import ConfigErrors
from headrace_plugins.connectors.datagen.connector import DatagenSource
from headrace_plugins.connectors.delta.source import DeltaSource
from headrace_plugins.connectors.file.source import FileSource
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.window import NameTime, WindowSettings, clock_at

TIME, VALUE, SNAPSHOT = BoundaryKind.TIME, BoundaryKind.VALUE, BoundaryKind.SNAPSHOT
ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "UTC"]
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
NOON = "2024-01-01T12:00:00Z"
DAY = Boundaries(TIME, "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z")


# --- clocks that are set back and forward -------------------------------------------


@given(at=MOMENTS, seconds=st.integers(0, 3 * 3600), zone=st.sampled_from(ZONES))
def test_later_moments_never_cut_what_a_clock_shows_at_less(
    at: datetime, seconds: int, zone: str
) -> None:
    assert clock_at(at, ZoneInfo(zone)) <= clock_at(
        at + timedelta(seconds=seconds), ZoneInfo(zone)
    )


@given(minutes=st.integers(-300, 300), cut=st.integers(-300 * 60, 300 * 60))
def test_a_time_that_is_shown_twice_is_in_the_window_of_the_later_one(
    minutes: int, cut: int
) -> None:
    zone, back = ZoneInfo("Europe/Berlin"), datetime(2024, 10, 27, 1, tzinfo=UTC)
    shown = datetime(2024, 10, 27, 2) + timedelta(minutes=minutes)  # noqa: DTZ001
    at = back + timedelta(seconds=cut)
    later = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    assert (clock_at(at, zone) <= shown) == (at <= later)


# --- times in names -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "time"),
    [
        ("%Y%m%d", "/in/of-20230101/20240229.csv", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("%Y%m%d", "/in/20240229/20240230.csv", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("%Y%m%d", "/in/202402290.csv", None),
        ("dt=%Y-%m/%d", "/in/1dt=2024-02/09/x", datetime(2024, 2, 9)),  # noqa: DTZ001
        ("%Y-%m", "/in/2024-02.csv", datetime(2024, 2, 1)),  # noqa: DTZ001
        ("%H.%M.%S_%d.%m.%Y%%", "/x/23.59.58_01.02.2024%", datetime(2024, 2, 1, 23, 59, 58)),  # noqa: DTZ001
    ],
)
def test_the_last_time_in_a_path_is_that_of_its_file(
    text: str, path: str, time: datetime | None
) -> None:
    assert NameTime.of(text).time(path) == time


@pytest.mark.parametrize("text", ["%m%d", "%Y%Y", "%Y%q", "%Y%", "day"])
def test_a_format_of_names_without_a_year_or_with_an_unknown_field_is_refused(
    text: str,
) -> None:
    with pytest.raises(ConfigError) as raised:
        NameTime.of(text)
    assert raised.value.field == "window.name.format"


# --- columns ------------------------------------------------------------------------

SCHEMA = Schema.struct(
    {
        "id": Schema.int32(optional=True),
        "at": Schema.timestamp(optional=True),
        "shown": Schema.local_timestamp(optional=True),
        "day": Schema.date(),
        "amount": Schema.decimal(2, precision=6),
        "name": Schema.string(),
        "real": Schema.float64(),
        "yes": Schema.boolean(),
        "tags": Schema.array(Schema.string()),
    }
)


def window(kind: str, column: str, lower: str | None, upper: str | None = None) -> Any:
    props = {"window.kind": kind, "window.column": column, "window.from": lower}
    props |= {"window.to": upper}
    settings = WindowSettings.parsed({key: text for key, text in props.items() if text})
    return settings.column_window(SCHEMA, "Europe/Berlin", "The file")


@pytest.mark.parametrize(
    ("kind", "column", "text", "bound"),
    [
        ("value", "id", "-7", -7),
        ("value", "amount", "1.001", Decimal("1.01")),
        ("value", "amount", "-1.001", Decimal("-1.00")),
        ("value", "name", "7", "7"),
        ("value", "day", "2024-07-01", date(2024, 7, 1)),
        ("value", "at", "2024-07-01", datetime(2024, 6, 30, 22, tzinfo=UTC)),
        ("value", "shown", "2024-07-01T00:00:01", datetime(2024, 7, 1, 0, 0, 1, tzinfo=UTC)),
        ("time", "shown", "2024-07-01T00:00:00Z", datetime(2024, 7, 1, 2, tzinfo=UTC)),
        ("time", "day", "2024-06-30T22:00:00Z", date(2024, 7, 1)),
        ("time", "day", "2024-06-30T22:00:01Z", date(2024, 7, 2)),
    ],
)
def test_a_bound_is_as_the_column_has_values(
    kind: str, column: str, text: str, bound: Any
) -> None:
    assert window(kind, column, text).lower == bound
    assert window(kind, column, None, text).upper == bound


@pytest.mark.parametrize(
    ("kind", "column", "text", "field"),
    [
        ("time", "missing", "2024-01-01T00:00:00Z", "window.column"),
        ("time", "ID", "2024-01-01T00:00:00Z", "window.column"),
        ("time", "name", "2024-01-01T00:00:00Z", "window.column"),
        ("time", "id", "2024-01-01T00:00:00Z", "window.column"),
        ("value", "real", "1.5", "window.column"),
        ("value", "yes", "true", "window.column"),
        ("value", "tags", "a", "window.column"),
        ("value", "id", "1.5", "window.from"),
        ("value", "id", str(2**63), "window.from"),
        ("value", "amount", "NaN", "window.from"),
        ("value", "amount", "9" * 40, "window.from"),
        ("value", "day", "yesterday", "window.from"),
        ("value", "at", "2024-13-01", "window.from"),
    ],
)
def test_a_column_or_a_bound_without_an_order_is_refused(
    kind: str, column: str, text: str, field: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        window(kind, column, text)
    assert (raised.value.field, bool(raised.value.fix)) == (field, True)


def test_a_null_is_in_no_window() -> None:
    rows = pa.record_batch({"id": pa.array([None, 1, 2], pa.int32())})
    assert window("value", "id", None).rows(rows)["id"].to_pylist() == [1, 2]
    assert window("value", "id", "2").rows(rows)["id"].to_pylist() == [2]
    assert window("value", "id", None).sql("`id`") == "`id` IS NOT NULL"


# --- what sources refuse ------------------------------------------------------------

NOWHERE = {"connection.url": "postgresql://nowhere.invalid/db"}
TIMED = {**NOWHERE, "mode": "timestamp", "timestamp.column.name": "at"}
FILES = {"path": "/no/such/folder", "format": "csv"}
TABLE = {"path": "/no/such/table"}


def parsed(connector: type[SourceConnector], props: dict[str, str]) -> Config:
    keys = {"name": "c", "connector.class": "c", **props}
    return connector.config_def().merged(source_def()).parse(keys)


@pytest.mark.parametrize(
    ("connector", "keys", "boundaries", "field"),
    [
        (FileSource, {**FILES, "mode": "grow"}, DAY, "mode"),
        (FileSource, FILES, Boundaries(VALUE, "1"), "window.column"),
        (DeltaSource, TABLE, Boundaries(VALUE, "1"), "window.column"),
        (DeltaSource, TABLE, Boundaries(SNAPSHOT, "-1"), "boundaries.lower"),
        (DeltaSource, TABLE, Boundaries(SNAPSHOT, None, "0"), "boundaries.upper"),
        (
            FileSource,
            {**FILES, "schema": "id LONG, at TIMESTAMP", "window.column": "att"},
            DAY,
            "window.column",
        ),
        (JdbcSource, NOWHERE, DAY, "window.column"),
        (JdbcSource, NOWHERE, Boundaries(VALUE, "1"), "window.column"),
        (
            JdbcSource,
            {
                **NOWHERE,
                "mode": "timestamp+incrementing",
                "incrementing.column.name": "id",
                "timestamp.column.name": "at",
            },
            DAY,
            "window.column",
        ),
        (DatagenSource, {}, Boundaries(VALUE, "1"), "rows"),
        (DatagenSource, {"rows": "9"}, Boundaries(VALUE, "one"), "boundaries.lower"),
    ],
)
def test_what_bounds_need_is_named_without_a_connection(
    connector: type[SourceConnector], keys: dict[str, str], boundaries: Boundaries, field: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        connector.fill_in_boundaries(parsed(connector, keys), boundaries)
    assert (raised.value.field, bool(raised.value.fix)) == (field, True)


@pytest.mark.parametrize(
    ("connector", "keys", "field"),
    [
        (FileSource, {**FILES, "window.from": "yesterday"}, "window.from"),
        (FileSource, {**FILES, "window.to": "2024-01-01"}, "window.to"),
        (FileSource, {**FILES, "window.kind": "snapshot"}, "window.kind"),
        (FileSource, {**FILES, "window.kind": "value", "window.to": "1"}, "window.column"),
        (FileSource, {**FILES, "window.by": "column"}, "window.column"),
        (FileSource, {**FILES, "window.by": "name"}, "window.name.format"),
        (FileSource, {**FILES, "window.name.format": "%d"}, "window.name.format"),
        (DeltaSource, {**TABLE, "window.to": "2024-01-01T00:00:00Z"}, "window.column"),
        (
            DeltaSource,
            {**TABLE, "window.column": "at", "read.change.feed": "true"},
            "window.column",
        ),
        (JdbcSource, {**NOWHERE, "window.to": "2024-01-01T00:00:00Z"}, "window.column"),
        (
            JdbcSource,
            {
                **NOWHERE,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "window.kind": "value",
                "window.column": "id",
            },
            "mode",
        ),
        (
            JdbcSource,
            {
                **NOWHERE,
                "bulk.interval.ms": "9",
                "window.kind": "value",
                "window.column": "id",
            },
            "bulk.interval.ms",
        ),
        (
            JdbcSource,
            {**NOWHERE, "window.column": "at", "window.from": NOON, "window.follow": "true"},
            "window.follow",
        ),
        (
            JdbcSource,
            {
                **TIMED,
                "window.column": "at",
                "window.from": NOON,
                "window.follow": "true",
                "timestamp.initial": "0",
            },
            "timestamp.initial",
        ),
    ],
)
def test_keys_of_a_window_that_lack_something_are_refused(
    connector: type[SourceConnector], keys: dict[str, str], field: str
) -> None:
    with pytest.raises(ConfigErrors) as raised:
        parsed(connector, keys)
    assert {error.field for error in raised.value.errors} == {field}
    assert all(error.fix for error in raised.value.errors)


@pytest.mark.parametrize(
    ("connector", "keys", "boundaries"),
    [
        (FileSource, FILES, DAY),
        (DeltaSource, TABLE, DAY),
        (
            DeltaSource,
            {**TABLE, "ending.timestamp": "2023-01-01"},
            Boundaries(SNAPSHOT, "1", "2"),
        ),
        (JdbcSource, {**NOWHERE, "window.column": "at"}, DAY),
        (DatagenSource, {"rows": "9"}, DAY),
    ],
)
def test_bounds_are_filled_in_in_place_of_others(
    connector: type[SourceConnector], keys: dict[str, str], boundaries: Boundaries
) -> None:
    later = Boundaries(boundaries.kind, boundaries.upper)
    once = connector.fill_in_boundaries(parsed(connector, keys), boundaries)
    again = connector.fill_in_boundaries(parsed(connector, dict(once)), later)
    if connector is not DatagenSource:  # whose window is cut out of what it has
        assert again == connector.fill_in_boundaries(parsed(connector, keys), later)
    assert boundaries.kind in connector.boundary_kinds


NUMBERED = {**NOWHERE, "mode": "incrementing", "incrementing.column.name": "id"}
BOTH = {**TIMED, "mode": "timestamp+incrementing", "incrementing.column.name": "id"}
FROM_DAY, FROM_NUMBER = Boundaries(TIME, DAY.lower), Boundaries(VALUE, "7")


@pytest.mark.parametrize(
    ("keys", "boundaries", "column"),
    [
        (TIMED, FROM_DAY, "at"),
        ({**BOTH, "timestamp.initial": "0", "incrementing.initial": "9"}, FROM_DAY, "at"),
        ({**NUMBERED, "incrementing.initial": "9"}, FROM_NUMBER, "id"),
    ],
)
def test_a_database_is_followed_from_the_bound_and_no_other_place(
    keys: dict[str, str], boundaries: Boundaries, column: str
) -> None:
    found = JdbcSource.follow_from(parsed(JdbcSource, keys), boundaries)
    assert parsed(JdbcSource, dict(found)).find_str("window.from") == boundaries.lower
    assert (found["mode"], found["window.column"]) == (keys["mode"], column)
    assert not [key for key in found if key.endswith(".initial")]


@pytest.mark.parametrize(
    ("keys", "boundaries"),
    [
        ({**NOWHERE, "window.column": "at"}, FROM_DAY),
        ({**TIMED, "window.column": "made"}, FROM_DAY),
        (TIMED, FROM_NUMBER),
        (NUMBERED, FROM_DAY),
        ({**BOTH, "window.column": "id"}, FROM_NUMBER),
    ],
)
def test_a_database_is_followed_by_the_column_of_its_mode_only(
    keys: dict[str, str], boundaries: Boundaries
) -> None:
    with pytest.raises(ConfigError) as raised:
        JdbcSource.follow_from(parsed(JdbcSource, keys), boundaries)
    assert raised.value.field == "mode"


def test_a_file_that_grows_or_has_no_columns_has_no_window_of_rows(tmp_path: Path) -> None:
    window = {"path": str(tmp_path), "window.column": "at", "window.kind": "time"}
    grown = parsed(FileSource, {**window, "format": "csv", "mode": "grow"})
    assert "mode" in {error.field for error in FileSource.check(grown)}
    text = parsed(FileSource, {**window, "format": "text"})
    assert [error.field for error in FileSource.check(text)] == ["window.column"]
    declared = parsed(FileSource, {**window, "format": "csv", "schema": "id BIGINT, at STRING"})
    assert [error.field for error in FileSource.check(declared)] == ["window.column"]
