"""The book keeps what workers tell, for as long as it means something."""

from datetime import timedelta

import pytest
from tests.unit.metrics.told import AT, batch, connector, empty, run

from headrace.metrics import JobMetrics, WorkerMetrics
from headrace.model import ConnectorState, TaskId, TaskState
from headrace.sdk import Lag

SECOND = timedelta(seconds=1)


def values(book: WorkerMetrics, name: str, **labels: str) -> list[float]:
    """Return the values of the samples of a name that have these labels."""
    return [
        sample.value
        for sample in book.samples()
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def value(book: WorkerMetrics, name: str, **labels: str) -> float:
    (found,) = values(book, name, **labels)
    return found


def test_counts_go_on_when_a_task_is_restarted():
    book = empty()
    task = run(book, "a")
    book.batch_finished(batch(task, read=5, written=5), SECOND)
    book.state_changed(task, TaskState.RESTARTING, None)
    run(book, "a")
    book.batch_finished(batch(task, 2, read=3, written=3), SECOND)
    assert value(book, "headrace_task_records_read_total", connector="a", task="0") == 8
    assert value(book, "headrace_task_restarts_total", connector="a") == 1
    assert value(book, "headrace_worker_task_startups_total", outcome="success") == 2


def test_counts_go_on_when_a_connector_was_stopped_meanwhile_and_are_not_shown_then():
    book = empty()
    task = run(book, "a")
    book.batch_finished(batch(task, read=5, written=5), SECOND)
    book.state_changed(task, TaskState.STOPPED, None)
    book.connector_changed(connector("a"), ConnectorState.STOPPED, [])
    assert values(book, "headrace_task_records_read_total") == []
    assert value(book, "headrace_connector_state", connector="a", state="STOPPED") == 1
    assert sum(values(book, "headrace_connector_tasks", connector="a")) == 0
    run(book, "a")
    assert value(book, "headrace_task_records_read_total") == 5


def test_nothing_is_left_of_a_deleted_connector():
    book = empty()
    run(book, "a")
    run(book, "b")
    book.connector_gone("a")
    assert not [s for s in book.samples() if s.labels.get("connector") == "a"]
    assert [s for s in book.samples() if s.labels.get("connector") == "b"]


def test_a_task_that_its_connector_no_longer_has_is_not_shown():
    book = empty()
    run(book, "a", 0)
    run(book, "a", 1)
    assert len(values(book, "headrace_task_restarts_total")) == 2
    book.connector_changed(connector("a"), ConnectorState.RUNNING, [0])
    assert len(values(book, "headrace_task_restarts_total")) == 1
    assert value(book, "headrace_connector_tasks", state="RUNNING") == 1


@pytest.mark.parametrize("state", TaskState)
def test_a_task_is_in_one_state(state: TaskState):
    book = empty()
    task = run(book, "a")
    book.state_changed(task, state, None)
    states = {
        sample.labels["state"]: sample.value
        for sample in book.samples()
        if sample.name == "headrace_task_state"
    }
    assert states == {str(each): float(each is state) for each in TaskState}
    assert value(book, "headrace_connector_tasks", state=state.value) == 1


def test_a_connector_that_was_paused_before_shows_its_tasks():
    book = empty()
    book.connector_changed(connector("a"), ConnectorState.PAUSED, [0, 1])
    assert values(book, "headrace_task_state", connector="a", state="PAUSED") == [1, 1]
    assert value(book, "headrace_connector_tasks", state="PAUSED") == 2
    run(book, "a")
    assert value(book, "headrace_task_restarts_total", task="0") == 1


def test_a_start_that_fails_is_no_success():
    book = empty()
    task = TaskId("a", 0)
    book.state_changed(task, TaskState.UNASSIGNED, None)
    book.state_changed(task, TaskState.FAILED, ValueError("x"))
    book.connector_changed(connector("b"), ConnectorState.FAILED, [])
    started = "headrace_worker_task_startups_total"
    assert value(book, started, outcome="failure") == 1
    assert value(book, started, outcome="success") == 0
    assert value(book, "headrace_worker_connector_startups_total", outcome="failure") == 1
    assert value(book, "headrace_task_failures_total") == 1


def test_a_failure_after_the_start_is_no_failed_start():
    book = empty()
    task = run(book, "a")
    book.state_changed(task, TaskState.FAILED, ValueError("x"))
    assert value(book, "headrace_worker_task_startups_total", outcome="failure") == 0


def test_rejected_records_are_dead_letters_only_where_there_is_a_topic_for_them():
    book = empty()
    one, other = run(book, "a"), run(book, "b")
    book.expect_letters(one, "x.dlq")
    for task in (one, other):
        rejected = batch(task, read=2, rejected=2, causes={"TRANSFORMATION E": 2})
        book.batch_finished(rejected, SECOND)
    letters = "headrace_task_dead_letters_total"
    assert (value(book, letters, connector="a"), value(book, letters, connector="b")) == (2, 0)
    errors = "headrace_task_record_errors_total"
    assert value(book, errors, connector="b", stage="TRANSFORMATION") == 2


def test_a_task_that_finds_nothing_new_has_no_lag_and_one_that_never_knew_has_none_shown():
    book = empty()
    one, other = run(book, "a"), run(book, "b")
    age = timedelta(seconds=1.5)
    lags: dict[TaskId, Lag | None] = {
        one: Lag(rows=5, age=age, retained_bytes=7),
        other: Lag(),
    }
    book.measure_lags(lambda: lags)
    assert value(book, "headrace_task_lag_records") == 5
    assert value(book, "headrace_task_lag_seconds") == 1.5
    assert value(book, "headrace_task_source_retained_bytes") == 7
    assert values(book, "headrace_task_lag_bytes") == []
    lags[one] = Lag(size_bytes=9)
    assert value(book, "headrace_task_lag_bytes") == 9
    assert values(book, "headrace_task_lag_records") == []
    lags[one] = Lag(rows=5)
    assert value(book, "headrace_task_lag_records") == 5
    lags.update({one: None, other: None})
    assert value(book, "headrace_task_lag_records", connector="a") == 0
    assert values(book, "headrace_task_lag_records", connector="b") == []


def test_batch_times_fall_into_buckets():
    book = empty()
    task = run(book, "a")
    for seconds in (0.05, 0.06, 300.0):
        book.batch_finished(batch(task), timedelta(seconds=seconds))
    bucket = "headrace_task_batch_seconds_bucket"
    assert value(book, bucket, le="0.05") == 1
    assert value(book, bucket, le="120.0") == 2
    assert value(book, bucket, le="+Inf") == 3
    assert value(book, "headrace_task_batch_seconds_count") == 3
    assert value(book, "headrace_task_batch_seconds_sum") == pytest.approx(300.11)


def test_one_version_of_a_connector_is_shown_that_of_its_plugin_now():
    versions = iter(["1", "2"])
    book = WorkerMetrics(
        clock=lambda: AT, worker="w1", version="9", version_of=lambda _: next(versions)
    )
    for _ in range(2):
        book.connector_changed(connector("a"), ConnectorState.RUNNING, [])
    assert values(book, "headrace_connector_info", version="2") == [1]
    assert values(book, "headrace_connector_info", version="1") == []


def test_the_runs_of_a_job_are_counted_as_its_own_however_many_they_are():
    book = empty()
    runs = JobMetrics(book)
    for number in range(100):
        task = TaskId(f"a@{number}.1", 0)
        runs.state_changed(task, TaskState.UNASSIGNED, None)
        runs.state_changed(task, TaskState.RUNNING, None)
        runs.started(task)
        runs.batch_finished(batch(task, read=5, written=5), SECOND)
        runs.committed(task, SECOND)
        runs.state_changed(task, TaskState.COMPLETED, None)
    of_job = {"connector": "a@", "task": "0"}
    assert value(book, "headrace_task_records_read_total", **of_job) == 500
    assert value(book, "headrace_task_restarts_total", **of_job) == 0
    assert {each.labels.get("connector") for each in book.samples()} == {None, "a@"}
