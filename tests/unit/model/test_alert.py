"""About what a run alerts, by its counts, its time and those of runs before it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import (
    AlertKind,
    AlertPolicy,
    Counts,
    Run,
    RunState,
    ToleranceExceededError,
    TooManyRejectedError,
    Trigger,
    cause_of,
)
from headrace.model.alert import out_of_range
from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    ConfigError,
    ConfigErrors,
    RejectedError,
    RetriableError,
    SinkError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FACTORS = st.floats(1.01, 100)
FIGURES = st.lists(st.integers(0, 10**9).map(float), max_size=30)


def run(
    state: RunState = RunState.SUCCEEDED,
    rows: int = 3,
    seconds: float = 2,
    hours: int = 1,
    **more: object,
) -> Run:
    made = Run(
        id=7,
        job="orders",
        boundaries=Boundaries.between(NOW, NOW + hours * HOUR),
        state=state,
        trigger=Trigger.SCHEDULE,
        by="scheduler",
        due=NOW,
        attempt=1,
        began=NOW,
        ended=NOW + timedelta(seconds=seconds),
        counts=Counts(read=rows, written=rows),
    )
    return replace(made, **more)  # type: ignore[arg-type]  # whatever a test names


def kinds(policy: AlertPolicy, ended: Run, *earlier: Run, cause: str = "why") -> list[str]:
    return [kind.value for kind, _ in policy.findings(ended, earlier, cause)]


def test_by_default_only_failures_and_lost_records_alert() -> None:
    policy = AlertPolicy()
    assert kinds(policy, run()) == []
    assert kinds(policy, run(rows=0)) == []
    assert kinds(policy, run(RunState.FAILED)) == ["failed"]
    assert kinds(policy, run(counts=Counts(read=3, written=2))) == ["balance"]
    assert kinds(policy, run(RunState.FAILED, counts=Counts(read=3))) == ["failed", "balance"]
    for state in (RunState.STOPPED, RunState.SKIPPED, RunState.QUEUED):
        assert kinds(policy, run(state)) == []
    nothing = AlertPolicy(failed=False, balance=False)
    assert kinds(nothing, run(RunState.FAILED, counts=Counts(read=3))) == []


@given(*[st.integers(0, 50)] * 4)
def test_the_balance_alerts_whenever_it_does_not_hold(
    read: int, written: int, filtered: int, rejected: int
) -> None:
    counts = Counts(read=read, written=written, filtered=filtered, rejected=rejected)
    found = kinds(AlertPolicy(), run(counts=counts))
    assert (found == ["balance"]) is (read != written + filtered + rejected)


def test_a_run_that_is_tried_again_alerts_about_nothing() -> None:
    policy = AlertPolicy(empty=True, rows_factor=2, duration_factor=2)
    queued = run(RunState.QUEUED, counts=Counts(read=9), error="It broke.")
    assert kinds(policy, queued, *[run()] * 9) == []


def test_an_empty_run_alerts_where_that_is_not_expected() -> None:
    assert kinds(AlertPolicy(empty=True), run(rows=0)) == ["empty"]
    assert kinds(AlertPolicy(empty=True), run(rows=1)) == []
    assert kinds(AlertPolicy(empty=True), run(RunState.FAILED, rows=0)) == ["failed"]
    live = run(rows=0, trigger=Trigger.REALTIME)
    assert kinds(AlertPolicy(empty=True), live) == []
    # It is not told of twice.
    both = AlertPolicy(empty=True, rows_factor=2)
    assert kinds(both, run(rows=0), *[run(rows=100)] * 5) == ["empty"]


@pytest.mark.parametrize(
    ("rows", "unusual"), [(9, True), (10, False), (20, False), (40, False), (41, True)]
)
def test_rows_are_unusual_outside_of_the_factor(rows: int, unusual: bool) -> None:
    policy = AlertPolicy(rows_factor=2)
    usual = [run(rows=each) for each in (1, 20, 20, 21, 1000)]
    assert kinds(policy, run(rows=rows), *usual) == (["rows"] if unusual else [])
    assert kinds(policy, run(rows=rows), *usual[:4]) == []


def test_the_time_that_a_run_takes_is_compared_too() -> None:
    policy = AlertPolicy(duration_factor=3)
    usual = [run(seconds=each) for each in (9, 10, 11, 10, 10)]
    assert kinds(policy, run(seconds=31), *usual) == ["duration"]
    assert kinds(policy, run(seconds=3), *usual) == ["duration"]
    assert kinds(policy, run(seconds=30), *usual) == []
    [(_, text)] = policy.findings(run(seconds=31), usual, "")
    assert text == "took 31 seconds; the last 5 runs suggest 3.33 to 30"


def test_runs_over_other_lengths_are_not_compared() -> None:
    policy = AlertPolicy(rows_factor=2)
    hourly, chunk = [run(rows=10)] * 5, run(rows=240, hours=24)
    assert kinds(policy, chunk, *hourly) == []
    assert kinds(policy, run(rows=240), *hourly) == ["rows"]
    versions = [
        run(rows=10, boundaries=Boundaries(BoundaryKind.SNAPSHOT, str(n), str(n + 1)))
        for n in range(5)
    ]
    assert kinds(policy, replace(versions[0], counts=Counts(99, 99)), *versions) == ["rows"]
    assert kinds(policy, run(rows=240), *versions) == []


def test_only_the_newest_twenty_count() -> None:
    policy = AlertPolicy(rows_factor=2)
    newest, older = [run(rows=10)] * 20, [run(rows=1000)] * 80
    assert kinds(policy, run(rows=10), *newest, *older) == []
    assert kinds(policy, run(rows=1000), *newest, *older) == ["rows"]


@given(st.integers(0, 10**9), FIGURES, FACTORS)
def test_a_value_is_in_range_between_the_median_divided_and_multiplied(
    value: int, usual: list[float], factor: float
) -> None:
    unusual = out_of_range(value, usual, factor) is not None
    if len(usual) < 5 or median(usual) == 0:
        assert not unusual
    else:
        ratio = value / median(usual)
        assert unusual is not (1 / factor <= ratio <= factor) or ratio == pytest.approx(
            factor if ratio > 1 else 1 / factor
        )


@given(FIGURES, FACTORS)
def test_the_median_itself_and_a_larger_factor_never_alert_more(
    usual: list[float], factor: float
) -> None:
    if usual:
        assert out_of_range(median(usual), usual, factor) is None
    for value in usual:
        if out_of_range(value, usual, factor) is None:
            assert out_of_range(value, usual, factor * 2) is None


@given(FIGURES, st.integers(0, 10**6), FACTORS, st.randoms())
def test_the_order_of_runs_does_not_matter(usual, value, factor, chance) -> None:
    shuffled = list(usual)
    chance.shuffle(shuffled)
    assert out_of_range(value, usual, factor) == out_of_range(value, shuffled, factor)


@pytest.mark.parametrize(
    "error",
    [
        ToleranceExceededError(
            stage="sink",
            plugin="postgres",
            exception="DataException",
            message="Invalid value 'Jane Doe' for id",
            record="orders-0@7: Jane Doe",
        ),
        RejectedError({0: ValueError("Jane Doe")}),
        SinkError("Key (name)=(Jane Doe) already exists."),
        TooManyRejectedError("9 of 10 records. For example: sink ValueError: Jane Doe"),
        ValueError("could not convert string to float: 'Jane Doe'"),
    ],
)
def test_a_cause_quotes_no_record(error: Exception) -> None:
    assert "Jane" in str(error)
    assert "Jane" not in cause_of(error)
    assert cause_of(error).strip()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            ConfigError("No such table.", fix="Name one.", field="table"),
            "[config.invalid] table: No such table. Fix: Name one.",
        ),
        (RetriableError("db1 does not respond."), "[task.retriable] db1 does not respond."),
        (
            ConfigErrors([ConfigError("a"), ConfigError("b")]),
            "[config.several_invalid] 2 configuration values are not valid",
        ),
        (
            SinkError("Row 7"),
            "[sink.failed] A sink could not write.",
        ),
        (KeyError("x"), "KeyError"),
    ],
)
def test_a_cause_says_what_helps(error: Exception, shown: str) -> None:
    assert cause_of(error) == shown


def test_a_failure_says_its_cause_and_its_attempts() -> None:
    failed = run(RunState.FAILED, attempt=3)
    [(kind, text)] = AlertPolicy().findings(failed, [], "It broke.")
    assert (kind, text) == (AlertKind.FAILED, "has failed after 3 attempts: It broke")
