"""A cron expression for another scheduler comes when our windows end."""

from datetime import UTC
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from headrace.control import read_job
from headrace.model import Schedule
from headrace.scheduler import Airflow, DolphinScheduler
from headrace.scheduler.cron_fields import cron_of
from headrace.sdk import ConfigError


def schedule(**section: Any) -> Schedule:
    document = {
        "name": "flights",
        "source": {"connector": "file", "path": "in"},
        "sinks": [{"connector": "console"}],
        "schedule": {"start": "2024-03-30T00:00:00", **section},
    }
    found = read_job(document).schedule
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("section", "unix", "quartz"),
    [
        ({"every": "1 second"}, "* * * * * *", "* * * * * ? *"),
        ({"every": "20 seconds"}, "* * * * * 0,20,40", "0,20,40 * * * * ? *"),
        ({"every": "1 minute"}, "* * * * *", "0 * * * * ? *"),
        (
            {"every": "15 minutes", "start": "2024-03-30T07:10:05"},
            "10,25,40,55 * * * * 5",
            "5 10,25,40,55 * * * ? *",
        ),
        ({"every": "60 minutes"}, "0 * * * *", "0 0 * * * ? *"),
        (
            {"every": "8 hours", "start": "2024-03-30T01:30:00"},
            "30 1,9,17 * * *",
            "0 30 1,9,17 * * ? *",
        ),
        ({"every": "24 hours"}, "0 0 * * *", "0 0 0 * * ? *"),
        ({"every": "1 day", "start": "2024-03-30T07:30:00"}, "30 7 * * *", "0 30 7 * * ? *"),
        ({"every": "1 week"}, "0 0 * * SAT", "0 0 0 ? * SAT *"),
        (
            {"every": "1 month", "start": "2024-01-05T00:00:00"},
            "0 0 5 * *",
            "0 0 0 5 * ? *",
        ),
        (
            {"every": "3 months", "start": "2024-02-28T00:00:00"},
            "0 0 28 2,5,8,11 *",
            "0 0 0 28 2,5,8,11 ? *",
        ),
        ({"every": "1 year", "start": "2024-02-28T00:00:00"}, "0 0 28 2 *", "0 0 0 28 2 ? *"),
        ({"cron": "30 2 * * *"}, "30 2 * * *", "0 30 2 * * ? *"),
        ({"cron": "15 30 2 * * *"}, "30 2 * * * 15", "15 30 2 * * ? *"),
        ({"cron": "0 0 * * 1-5"}, "0 0 * * 1-5", "0 0 0 ? * MON,TUE,WED,THU,FRI *"),
        ({"cron": "0 0 * * 5-7"}, "0 0 * * 5-7", "0 0 0 ? * SUN,FRI,SAT *"),
        ({"cron": "0 0 * * 0,7"}, "0 0 * * 0,7", "0 0 0 ? * SUN *"),
        ({"cron": "0 0 * * */2"}, "0 0 * * */2", "0 0 0 ? * SUN,TUE,THU,SAT *"),
        ({"cron": "0 0 1 * 1"}, "0 0 1 * 1", None),
        ({"cron": "0 0 * * 1#2"}, "0 0 * * 1#2", None),
    ],
)
def test_a_schedule_is_said_as_cron(
    section: dict[str, str], unix: str, quartz: str | None
) -> None:
    made = cron_of(schedule(**section))
    assert made is not None
    assert (made.unix, made.quartz) == (unix, quartz)


@pytest.mark.parametrize(
    "section",
    [
        {"every": "7 minutes"},
        {"every": "90 minutes"},
        {"every": "5 hours"},
        {"every": "2 days"},
        {"every": "2 weeks"},
        {"every": "5 months"},
        {"every": "2 years"},
        {"every": "1 month", "start": "2024-01-31T00:00:00"},
        {"once": True, "end": "2024-03-31T00:00:00"},
    ],
)
def test_other_schedules_have_no_expression(section: dict[str, Any]) -> None:
    assert cron_of(schedule(**section)) is None


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Europe/Zurich"])
@pytest.mark.parametrize(
    "every",
    [
        *("10 seconds", "1 minute", "30 minutes", "1 hour", "6 hours"),
        *("1 day", "1 week", "1 month", "4 months", "1 year"),
    ],
)
def test_each_window_ends_when_the_expression_says(zone: str, every: str) -> None:
    one = schedule(every=every, zone=zone, start="2024-03-23T01:10:20")
    made = cron_of(one)
    assert made is not None
    fields = made.unix.split()
    expression = " ".join([*fields[5:], *fields[:5]])  # cronsim has seconds first
    start = one.local(one.start).astimezone(ZoneInfo(made.zone))
    ticks = (tick.astimezone(UTC) for tick in CronSim(expression, start))
    ends = [window.upper for window in islice(one.windows(), 500)]
    assert list(islice(ticks, 500)) == ends


@pytest.mark.parametrize("section", [{"every": "2 days"}, {"every": "5 months"}])
def test_what_an_engine_cannot_say_is_refused(section: dict[str, str]) -> None:
    for engine in (Airflow, DolphinScheduler):
        with pytest.raises(ConfigError) as raised:
            engine.check(schedule(**section))
        assert raised.value.field == "schedule.every"


def test_what_only_one_of_them_can_say() -> None:
    Airflow.check(schedule(every="7 minutes"))
    Airflow.check(schedule(cron="0 0 1 * 1"))
    for section in ({"every": "7 minutes"}, {"cron": "0 0 1 * 1"}):
        with pytest.raises(ConfigError):
            DolphinScheduler.check(schedule(**section))
    for engine in (Airflow, DolphinScheduler):
        engine.check(schedule(once=True, end="2024-03-31T00:00:00"))
