"""Windows of a schedule tile the time line, whatever the calendar does."""

# ruff: noqa: DTZ001 - a schedule starts at a time of day in its own zone

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.schedule import Cron, Interval, Once, Rhythm, Schedule, TimeWindow, Unit
from headrace.sdk import ConfigError

ZONES = [
    "UTC",
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "Pacific/Apia",  # which left out a day
]
TIMES = st.datetimes(datetime(1995, 1, 1), datetime(2040, 1, 1)).map(
    lambda time: time.replace(microsecond=0)
)
CRONS = st.sampled_from(
    [
        "*/15 * * * *",
        "30 2 * * *",
        "30 2,3 * * *",
        "0 0 31 * *",
        "0 0 * * MON",
        "*/20 5 * * * *",
    ]
)
RHYTHMS: st.SearchStrategy[Rhythm] = st.one_of(
    st.builds(Interval, st.integers(1, 50), st.sampled_from(Unit)), st.builds(Cron, CRONS)
)
SCHEDULES = st.builds(Schedule, rhythm=RHYTHMS, start=TIMES, zone=st.sampled_from(ZONES))


@given(SCHEDULES)
def test_windows_tile_the_time_line(schedule: Schedule) -> None:
    windows = list(islice(schedule.windows(), 60))
    start = schedule.start.replace(tzinfo=ZoneInfo(schedule.zone)).astimezone(UTC)
    assert windows[0].lower == start
    assert all(one.upper == other.lower for one, other in pairwise(windows))
    assert all(window.lower < window.upper for window in windows)


@given(SCHEDULES, st.data())
def test_whoever_looks_later_sees_the_same_windows(
    schedule: Schedule, data: st.DataObject
) -> None:
    windows = list(islice(schedule.windows(), 40))
    seen = data.draw(st.integers(0, 38))
    inside = windows[seen].upper - windows[seen].lower
    since = windows[seen].lower + inside * data.draw(st.floats(0, 0.999))
    assert next(schedule.windows(since)) == windows[seen]


@given(SCHEDULES, st.integers(1, 30))
def test_an_end_cuts_the_last_window(schedule: Schedule, number: int) -> None:
    windows = list(islice(schedule.windows(), number))
    end = windows[-1].lower + (windows[-1].upper - windows[-1].lower) / 2
    ended = Schedule(rhythm=schedule.rhythm, start=schedule.start, zone=schedule.zone, end=end)
    assert list(ended.windows()) == [*windows[:-1], TimeWindow(windows[-1].lower, end)]
    assert list(ended.windows(end)) == []


def test_a_month_is_of_the_calendar() -> None:
    schedule = Schedule(rhythm=Interval(1, Unit.MONTH), start=datetime(2024, 1, 31))
    days = [window.lower.date().isoformat() for window in islice(schedule.windows(), 4)]
    assert days == ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"]


def test_a_day_has_23_and_25_hours_when_clocks_change() -> None:
    def hours(start: datetime) -> list[float]:
        schedule = Schedule(rhythm=Interval(1, Unit.DAY), start=start, zone="Europe/Zurich")
        return [(w.upper - w.lower) / timedelta(hours=1) for w in islice(schedule.windows(), 3)]

    assert hours(datetime(2024, 3, 30)) == [24, 23, 24]
    assert hours(datetime(2024, 10, 26)) == [24, 25, 24]


def test_a_window_is_due_when_late_data_has_come() -> None:
    schedule = Schedule(
        rhythm=Interval(1, Unit.HOUR),
        start=datetime(2024, 1, 1),
        delay=timedelta(minutes=10),
    )
    now = datetime(2024, 1, 1, 5, 5, tzinfo=UTC)
    fires = schedule.next_fires(now, 2)
    assert [fire.time().isoformat() for fire in fires] == ["05:10:00", "06:10:00"]


@pytest.mark.parametrize(
    ("rhythm", "more", "field"),
    [
        (Once(), {}, "schedule.end"),
        (Interval(1, Unit.DAY), {"end": datetime(2023, 1, 1)}, "schedule.end"),
        (Interval(1, Unit.DAY), {"zone": "Mars/Olympus"}, "schedule.zone"),
        (Interval(1, Unit.DAY), {"delay": timedelta(-1)}, "schedule.delay"),
    ],
)
def test_what_does_not_go_together_is_refused(
    rhythm: Rhythm, more: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Schedule(rhythm=rhythm, start=datetime(2024, 1, 1), **more)  # type: ignore[arg-type]
    assert raised.value.field == field


@pytest.mark.parametrize("text", ["", "* * *", "61 * * * *", "0 0 31 2 *"])
def test_a_cron_expression_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cron"):
        Cron(text)


class Counted(Cron):
    """Counts the ticks that are looked at."""

    seen = 0

    def ticks(self, start: datetime, after: datetime) -> Iterator[datetime]:
        for tick in super().ticks(start, after):
            type(self).seen += 1
            yield tick


@pytest.mark.parametrize("text", ["* * * * * *", "*/5 * * * *", "0 3 * * *", "0 0 29 2 *"])
def test_the_newest_window_is_found_without_a_look_at_all_before_it(text: str) -> None:
    Counted.seen = 0
    schedule = Schedule(rhythm=Counted(text), start=datetime(2000, 1, 1), zone="Europe/Berlin")
    now = datetime(2026, 3, 29, 12, 30, 15, tzinfo=UTC)
    window = schedule.newest_past(now)
    assert window is not None
    assert window.upper <= now
    assert Counted.seen < 1000
