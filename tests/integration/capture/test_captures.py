"""What a capture promises: everything arrives once, in order, and its failures are told."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.integration.capture.host_bench import SOURCES, Bench, now
from tests.integration.capture.host_sources import PARTITION
from tests.waiting import until

from headrace.capture import Pace
from headrace.model import (
    Backoff,
    TaskState,
    ToleranceExceededError,
    ToleranceLimits,
    TooManyRejectedError,
)
from headrace.sdk import Position, RetriableError, SourceError
from headrace.sdk.errors import SetupError
from headrace.worker import ToleranceGuard, Worker

pytestmark = pytest.mark.timeout(120)


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("kind", ["record", "batch", "json"])
def test_everything_arrives_once_and_in_order(bench: Bench, kind: str) -> None:
    task = bench.run(bench.spec(config={"kind": kind, "limit": 95}))
    assert task.failure is None
    assert bench.numbers() == list(range(95))
    assert bench.store.position(task.id) == Position.of(PARTITION, {"next": 95})
    totals = bench.store.totals(task.id)
    assert (totals.read, totals.written, totals.rejected) == (95, 95, 0)
    assert set(bench.appended) == {"numbers"}


def test_a_capture_goes_on_where_it_stood(bench: Bench) -> None:
    bench.run(bench.spec(config={"limit": 30}))
    bench.run(bench.spec(config={"limit": 50}))
    assert bench.numbers() == list(range(50))


def test_the_source_learns_what_is_durable_and_again_after_a_restart(bench: Bench) -> None:
    config = {"limit": 20, "rows": 20, "notes": bench.folder / "notes"}
    bench.run(bench.spec(config=config))
    bench.run(bench.spec(config=config))
    first = ["start 0", *["record"] * 20, "commit 20", "stop"]
    assert notes(bench.folder) == [*first, "start 20", "commit 20", "stop"]


def test_keys_headers_and_offsets_become_columns(bench: Bench) -> None:
    bench.run(bench.spec(config={"kind": "headers", "limit": 3}))
    rows = bench.rows("numbers")
    assert [row["key"] for row in rows] == ["0", "1", "2"]
    assert [row["value"] for row in rows] == [0, 1, 2]
    assert rows[2]["headers"] == [{"key": "h", "value": "2", "type": "int64"}]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert all(row["timestamp"].tzinfo is not None for row in rows)


def test_the_shape_of_plain_json_is_inferred_and_remembered(bench: Bench) -> None:
    bench.run(bench.spec(config={"kind": "json", "limit": 12, "rows": 4}))
    assert [row["value"].get("name") for row in bench.rows("numbers")[-2:]] == ["x", "x"]
    schema = bench.store.schema("counter", "numbers")
    assert schema is not None
    assert [field.name for field in schema.fields] == ["n", "name"]


def test_records_go_to_the_topics_that_they_name(bench: Bench) -> None:
    task = bench.run(bench.spec(config={"kind": "spread", "limit": 40}))
    assert bench.numbers("even") == list(range(0, 40, 2))
    assert bench.numbers("odd") == list(range(1, 40, 2))
    assert bench.store.totals(task.id).written == 40
    assert not (bench.topics_dir / "numbers").exists()


def test_small_polls_are_appended_together(bench: Bench) -> None:
    pace = Pace(linger_ms=100, poll_interval_ms=100)
    task = bench.run(bench.spec(config={"rows": 1, "limit": 500}, pace=pace))
    assert bench.numbers() == list(range(500))
    assert len(bench.store.batches(task.id)) < 50


def test_a_batch_ends_at_its_most_rows(bench: Bench) -> None:
    pace = Pace(linger_ms=10_000, max_rows=30, poll_interval_ms=100)
    task = bench.run(bench.spec(config={"rows": 10, "limit": 100}, pace=pace))
    # The first poll after silence is not held back.
    assert [b.counts.read for b in bench.store.batches(task.id)] == [30, 30, 30, 10]


def test_without_a_dead_letter_topic_a_rejected_row_stops_the_task(bench: Bench) -> None:
    task = bench.run(bench.spec(config={"kind": "batch", "trouble": "reject"}))
    assert isinstance(task.failure, ToleranceExceededError)
    assert "no number" in str(task.failure)
    with pytest.raises(ToleranceExceededError):
        task.step()
    assert bench.rows("numbers") == []
    assert bench.store.unfinished_batch(task.id) is None


def test_rejected_rows_go_to_the_dead_letter_topic_with_their_cause(bench: Bench) -> None:
    config = {"kind": "batch", "trouble": "reject", "limit": 20}
    task = bench.run(bench.spec(config=config, dead_letters="dead", context_headers=True))
    assert bench.numbers() == list(range(20))
    totals = bench.store.totals(task.id)
    assert (totals.read, totals.written, totals.rejected) == (22, 20, 2)
    letters = bench.rows("dead")
    assert [letter["value"] for letter in letters] == ["\ufffdbad"] * 2
    assert totals.causes == {"TASK_POLL RecordError": 2}
    assert letters[0]["cause"]["raw"] == b"\xffbad"
    headers = {header["key"]: header["value"] for header in letters[0]["headers"]}
    assert headers["__connect.errors.exception.message"] == "no number"
    assert headers["__connect.errors.topic"] == "numbers"
    assert headers["__connect.errors.connector.name"] == "counter"


def test_rejected_rows_are_skipped_where_they_are_tolerated(bench: Bench) -> None:
    config = {"kind": "batch", "trouble": "reject", "limit": 20}
    task = bench.run(bench.spec(config=config, tolerant=True))
    assert bench.numbers() == list(range(20))
    assert bench.store.totals(task.id).rejected == 2


def test_a_capture_stops_before_the_batch_that_brings_too_many_rejected_rows(
    bench: Bench,
) -> None:
    config = {"kind": "batch", "trouble": "reject", "limit": 20}
    guard = ToleranceGuard(ToleranceLimits(count=1))
    task = bench.run(bench.spec(config=config, tolerant=True), guard=guard)
    assert isinstance(task.failure, TooManyRejectedError)
    assert bench.store.totals(task.id).rejected <= 1
    assert bench.store.unfinished_batch(task.id) is None


def test_a_record_of_another_shape_is_rejected_alone(bench: Bench) -> None:
    task = bench.run(bench.spec(config={"kind": "mixed", "limit": 20}, dead_letters="dead"))
    assert bench.numbers() == [n for n in range(20) if n != 7]
    assert [letter["value"] for letter in bench.rows("dead")] == ['{"n": "seven"}']
    assert bench.store.totals(task.id).rejected == 1


def test_a_busy_system_is_asked_again(bench: Bench) -> None:
    config = {"trouble": "busy", "limit": 10, "notes": bench.folder / "notes"}
    task = bench.start(bench.spec(config=config), once=True)
    seen: list[Exception] = []

    def done() -> bool:
        try:
            return task.step().ended
        except RetriableError as error:
            seen.append(error)
            return False

    until(done)
    task.stop()
    assert len(seen) == 2
    assert notes(bench.folder)[:3] == ["start 0", "busy", "busy"]
    assert bench.numbers() == list(range(10))


def test_a_system_that_stays_busy_fails_the_task_in_the_end(bench: Bench) -> None:
    backoff = Backoff(timeout=timedelta(milliseconds=1))
    task = bench.run(bench.spec(config={"trouble": "busy"}), backoff=backoff)
    assert isinstance(task.failure, SourceError)
    assert "not now" in str(task.failure)


def test_another_error_fails_the_task_with_its_message(bench: Bench) -> None:
    task = bench.run(bench.spec(config={"trouble": "broken"}))
    assert isinstance(task.failure, SourceError)
    assert "ValueError: the wire is cut" in str(task.failure)


def test_one_failing_capture_leaves_the_others_of_its_host_alone(bench: Bench) -> None:
    good = bench.start(bench.spec("good", config={"limit": 50, "pause": 0.01}), once=True)
    bench.run(bench.spec("bad", config={"trouble": "broken"}))
    until(lambda: good.completed)
    good.stop()
    assert bench.numbers() == list(range(50))


def test_a_connector_that_is_not_there_fails_its_task(bench: Bench) -> None:
    task = bench.run(bench.spec(class_path=f"{SOURCES}.Nothing"))
    assert "Nothing" in str(task.failure)


def test_an_environment_that_is_not_there_fails_its_task(bench: Bench) -> None:
    task = bench.task(bench.spec(), python="/nowhere/python")
    with pytest.raises(SetupError, match="/nowhere/python"):
        task.start(bench.lease(task), once=True, bounded=True)
    task.stop()


def test_an_environment_without_the_packages_fails_its_task(bench: Bench) -> None:
    empty = bench.folder / "python"
    empty.write_text("#!/bin/sh\necho no module named headrace\nexit 1\n")
    empty.chmod(0o755)
    task = bench.run(bench.spec(), python=str(empty))
    assert isinstance(task.failure, SetupError)
    assert "no module named headrace" in str(task.failure)


def test_steps_tell_the_batches_and_then_the_end(bench: Bench) -> None:
    task = bench.run(bench.spec(config={"limit": 20, "rows": 20}))
    step = task.step()
    assert step.batch is not None
    assert step.batch.counts.written == 20
    assert task.step().ended


def test_a_source_may_end_after_any_number_of_empty_polls(bench: Bench) -> None:
    pace = Pace(linger_ms=1, poll_interval_ms=1)
    task = bench.start(bench.spec(config={"limit": 1, "trouble": "ends late"}, pace=pace))
    until(lambda: task.completed)
    task.stop()
    assert bench.numbers() == [0]


def test_the_ledger_is_kept_by_the_worker(bench: Bench) -> None:
    config = {"trouble": "ledger", "limit": 1, "notes": bench.folder / "notes"}
    task = bench.run(bench.spec(config=config))
    assert notes(bench.folder)[1] == "ledger 2 [{'file': 'b'}]"
    assert bench.store.ledger_length(task.id) == 2


def test_stopping_appends_what_was_polled_and_is_quick(bench: Bench) -> None:
    pace = Pace(linger_ms=60_000, poll_interval_ms=1000)
    config = {"limit": 1000, "pause": 0.02, "notes": bench.folder / "notes"}
    task = bench.start(bench.spec(config=config, pace=pace))
    until(lambda: bool(bench.appended))
    time.sleep(2)
    began = time.monotonic()
    task.stop()
    assert time.monotonic() - began < 30
    numbers = bench.numbers()
    assert len(numbers) > 10
    assert numbers == list(range(len(numbers)))
    assert notes(bench.folder)[-1] == "stop"


def test_a_poll_that_hangs_does_not_hold_up_the_stop(bench: Bench) -> None:
    spec = bench.spec(config={"trouble": "hang", "notes": bench.folder / "notes"})
    task = bench.start(spec, grace=timedelta(milliseconds=300))
    until(lambda: notes(bench.folder) == ["start 0"])
    began = time.monotonic()
    task.stop()
    assert time.monotonic() - began < 30
    assert bench.hosts.pids == []


def test_log_lines_name_the_connector_and_hide_secrets(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()  # to the standard output
    config: dict[str, Any] = {"trouble": "chatter", "secret": "hunter22", "limit": 1}
    bench.run(bench.spec("talker", config=config))
    lines = capsys.readouterr().out.splitlines()
    assert any("printed by a plugin" in line and "talker" in line for line in lines)
    assert any("the secret is [hidden]" in line and "task" in line for line in lines)
    assert not any("hunter22" in line for line in lines)


class Silence:
    """Events of which nobody wants to hear."""

    def batch_finished(self, batch: object, took: object) -> None:
        pass

    def state_changed(self, task: object, state: object, error: object) -> None:
        pass

    def retrying(self, task: object, error: object, wait: object) -> None:
        pass


def test_a_worker_runs_captures_like_any_task(bench: Bench) -> None:
    good = bench.task(bench.spec("good", topic="good", config={"kind": "batch"}))
    bad = bench.task(bench.spec("bad", topic="bad", config={"trouble": "broken"}))
    worker = Worker(store=bench.store, owner="w", events=Silence(), clock=now, once=True)
    worker.add([good, bad])
    outcome = worker.run()
    assert outcome.states == {good.id: TaskState.COMPLETED, bad.id: TaskState.FAILED}
    assert bench.numbers("good") == list(range(100))
