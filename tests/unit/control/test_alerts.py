"""What jobs alert about, decided over a store in memory."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.control import AlertRules, Jobs, read_job
from headrace.model import (
    AlertKind,
    CatchUp,
    Counts,
    Job,
    JobState,
    RunState,
    Stamp,
    Trigger,
)
from headrace.plugins import Registry
from headrace.sdk import Boundaries, ConfigError, ConfigErrors
from headrace.store import AlertStore, JobChange, JobStore, NewAlert, NewRun, memory_database

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ANN = Stamp(NOW, "ann")


def document(alerts: dict[str, Any] | None = None, **schedule: object) -> dict[str, Any]:
    return {
        "name": "orders",
        "source": {"connector": "file", "path": "in"},
        "sinks": [{"connector": "console"}],
        "schedule": {"every": "1 hour", "start": "2026-01-01T00:00:00", **schedule},
        **({} if alerts is None else {"alerts": alerts}),
    }


class Bench:
    """Rules over a store in memory, at a time that is set."""

    def __init__(self, alerts: dict[str, Any] | None = None, **schedule: object) -> None:
        self.now = NOW
        self.store = JobStore(memory_database())
        self.alerts = AlertStore(self.store.database)
        self.made: list[str] = []
        self.rules = AlertRules(
            jobs=self.store,
            alerts=self.alerts,
            channels=["log", "ops"],
            clock=lambda: self.now,
            made=self.made.append,
        )
        wanted = Job(
            name="orders",
            uid="",
            document=document(alerts, **schedule),
            version=1,
            state=JobState.RUNNING,
            changed=NOW,
            by="",
        )
        self.job = self.store.create(wanted, None, ANN)

    def add(self, *hours: int, trigger: Trigger = Trigger.SCHEDULE) -> None:
        made = [
            NewRun(
                boundaries=Boundaries.between(NOW + n * HOUR, NOW + (n + 1) * HOUR),
                trigger=trigger,
                due=NOW,
            )
            for n in hours
        ]
        self.store.add_runs("orders", made, ANN)

    def end(self, state: RunState = RunState.SUCCEEDED, **more: Any) -> Sequence[NewAlert]:
        """End the oldest run that waits, as a worker does; return what was alerted."""
        seen = self.store.waiting(self.now, self.now, lambda _: True, 1)[0]
        run = self.store.take(seen, "w1", self.now, self.now, 9, in_order=False)
        assert run is not None
        ended = replace(run, state=state, ended=self.now + timedelta(seconds=1), **more)
        alerts = self.rules.of_end(ended, "It broke.")
        self.store.finish(
            run,
            state,
            self.now + timedelta(seconds=1),
            counts=ended.counts,
            due=self.now,
            alerts=alerts,
        )
        return alerts

    def edit(self, alerts: dict[str, Any]) -> None:
        seen = self.store.job("orders")
        wanted = replace(seen, document=document(alerts), version=seen.version + 1)
        self.store.change(JobChange(seen=seen, wanted=wanted), ANN)


def test_an_alert_says_all_in_plain_text() -> None:
    bench = Bench()
    bench.add(0)
    [made] = bench.end(RunState.FAILED, counts=Counts(read=1234, written=1200, filtered=34))
    alert = made.alert
    assert made.channels == ("log", "ops")
    assert (alert.kind, alert.job, alert.run) == ("failed", "orders", 1)
    assert alert.subject == "Run 1 of job orders has failed"
    assert alert.text == (
        "Run 1 of job orders has failed after 1 attempt: It broke.\n"
        "\n"
        "Job: orders\n"
        "Run: 1, failed\n"
        "Window: 2026-01-01 12:00:00 UTC to 2026-01-01 13:00:00 UTC\n"
        "Records: 1,234 read, 1,200 written, 34 filtered, 0 rejected\n"
        "Took: 1 seconds, in attempt 1\n"
        "See: headrace job show-run orders 1\n"
    )
    assert alert.details["upper"] == "2026-01-01T13:00:00+00:00"
    assert json.loads(json.dumps(alert.to_json()))["details"]["read"] == 1234
    [stored] = bench.alerts.alerts()
    assert stored.alert == alert
    assert bench.made == [AlertKind.FAILED]


def test_only_the_last_attempt_alerts_and_a_retry_by_hand_alerts_again() -> None:
    bench = Bench()
    bench.add(0)
    assert not bench.end(RunState.QUEUED, error="It broke.")
    [first] = bench.end(RunState.FAILED)
    assert "after 2 attempts" in first.alert.text
    bench.store.run_again(1, ANN, from_beginning=False)
    [second] = bench.end(RunState.FAILED)
    assert first.alert.id != second.alert.id
    assert len(bench.alerts.alerts("orders")) == 2


def test_a_run_in_real_time_that_is_tried_for_ever_alerts_once_an_hour() -> None:
    bench = Bench()
    bench.add(0, trigger=Trigger.REALTIME)
    [made] = bench.end(RunState.QUEUED, error="It broke.")
    assert "has failed after 1 attempt, and is retried: It broke." in made.alert.text
    assert not bench.end(RunState.QUEUED, error="It broke.")
    bench.rules = replace(bench.rules)  # of another server
    bench.end(RunState.QUEUED, error="It broke.")
    assert len(bench.alerts.alerts("orders", limit=10)) == 1
    bench.now += HOUR
    [again] = bench.end(RunState.QUEUED, error="It broke.")
    assert "after 4 attempts" in again.alert.text
    assert len(bench.alerts.alerts("orders", limit=10)) == 2


def test_a_run_that_does_not_get_on_alerts_once_an_hour() -> None:
    bench = Bench()
    bench.add(0)
    (seen,) = bench.store.waiting(NOW, NOW, lambda _: True, 1)
    run = bench.store.take(seen, "w1", NOW, NOW + HOUR, 9, in_order=False)
    assert run is not None
    [made] = bench.rules.of_end(run, "[storage.unavailable]")
    assert made.alert.subject == "Run 1 of job orders fails"
    assert "makes no progress, and retries: [storage.unavailable]." in made.alert.text
    bench.store.progress(run, Counts(), "away", [made])
    assert not bench.rules.of_end(run, "[storage.unavailable]")
    assert len(bench.alerts.alerts("orders")) == 1


def test_a_job_says_about_what_it_alerts_and_whom() -> None:
    bench = Bench({"failed": False, "empty": True, "channels": ["ops"]})
    bench.add(0, 1)
    assert not bench.end(RunState.FAILED)
    [empty] = bench.end()
    assert (empty.alert.kind, empty.channels) == ("empty", ("ops",))
    bench.edit({"empty": True, "channels": []})
    bench.add(2)
    [nobody] = bench.end()
    assert nobody.channels == ()
    assert len(bench.alerts.alerts()) == 1


def test_runs_are_compared_with_those_before_them_once_there_are_five() -> None:
    bench = Bench({"rows": {"factor": 2}, "duration.factor": 3})
    for hour, rows in enumerate([10, 10, 10, 10, 99, 99]):
        bench.add(hour)
        made = bench.end(counts=Counts(read=rows, written=rows))
        assert [each.alert.kind for each in made] == (["rows"] if hour == 5 else [])


def test_a_document_that_cannot_be_read_alerts_as_one_that_says_nothing() -> None:
    bench = Bench()
    bench.add(0)
    seen = bench.store.job("orders")
    wanted = replace(seen, document={"name": "orders"}, version=2)
    bench.store.change(JobChange(seen=seen, wanted=wanted), ANN)
    assert [each.alert.kind for each in bench.end(RunState.FAILED)] == ["failed"]
    [made] = bench.rules.of_job(bench.store.job("orders"), "blue moon")
    assert made.alert.subject == "Job orders has failed"
    assert made.alert.run is None
    assert "headrace job show orders" in made.alert.text


def test_a_fault_of_the_rules_keeps_no_run_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.add(0)

    def broken(_job: object) -> object:
        raise RuntimeError

    monkeypatch.setattr(bench.rules, "_policy", broken)
    assert bench.end(RunState.FAILED) == ()
    assert bench.store.run(1).state is RunState.FAILED


def kinds(bench: Bench) -> list[str]:
    return [each.alert.kind for each in bench.alerts.alerts()]


def test_a_run_is_late_once_from_its_windows_due_time_on() -> None:
    bench = Bench({"late": "30 minutes"}, delay="10 minutes")
    bench.add(0)  # due at 13:10
    bench.now = NOW + timedelta(minutes=60 + 10 + 29)
    assert bench.rules.look_for_late() == 0
    bench.now += timedelta(minutes=1)
    assert bench.rules.look_for_late() == 1
    assert bench.rules.look_for_late() == 0
    [stored] = bench.alerts.alerts()
    alert = stored.alert
    assert (alert.kind, alert.run) == ("late", 1)
    assert "it has not succeeded within 0:30:00 after the window was due" in alert.text
    assert "Run: 1, queued, 2026-01-01 12:00:00 UTC to 2026-01-01 13:00:00 UTC" in alert.text
    bench.now += 99 * HOUR
    assert bench.rules.look_for_late() == 0


def test_runs_that_are_late_at_once_are_one_alert() -> None:
    bench = Bench({"late": "1 hour"})
    bench.add(*range(12))
    bench.now = NOW + 24 * HOUR
    assert bench.rules.look_for_late() == 12
    [stored] = bench.alerts.alerts()
    assert stored.alert.subject == "12 runs of job orders are late"
    assert stored.alert.details["runs"] == 12
    assert stored.alert.text.count("\nRun: ") == 10
    assert "and 2 more" in stored.alert.text


def test_what_has_succeeded_or_was_stopped_is_not_late_and_what_has_failed_is() -> None:
    bench = Bench({"late": "1 hour", "failed": False})
    bench.add(0, 1, 2)
    bench.end()
    bench.store.ask_to_stop(2, ANN)
    bench.end(RunState.FAILED)
    bench.now = NOW + 24 * HOUR
    assert bench.rules.look_for_late() == 1
    [stored] = bench.alerts.alerts()
    assert stored.alert.run == 3


@pytest.mark.parametrize("trigger", [Trigger.BACKFILL, Trigger.MANUAL])
def test_windows_that_somebody_asks_for_are_not_late(trigger: Trigger) -> None:
    bench = Bench({"late": "1 hour"})
    bench.add(0, trigger=trigger)
    bench.now = NOW + 24 * HOUR
    assert bench.rules.look_for_late() == 0


def test_a_suspended_job_is_not_late_and_an_edit_counts_at_once() -> None:
    bench = Bench()
    bench.add(0)
    bench.now = NOW + 24 * HOUR
    assert bench.rules.look_for_late() == 0
    bench.edit({"late": "1 hour"})
    seen = bench.store.job("orders")
    suspended = bench.store.change(
        JobChange(seen=seen, wanted=replace(seen, state=JobState.SUSPENDED)), ANN
    )
    assert bench.rules.look_for_late() == 0
    bench.store.change(
        JobChange(seen=suspended, wanted=replace(suspended, state=JobState.RUNNING)), ANN
    )
    assert bench.rules.look_for_late() == 1


def test_the_keys_of_alerts_are_checked() -> None:
    policy = read_job(document()).alerts
    assert (policy.failed, policy.balance, policy.empty, policy.late) == (
        True,
        True,
        False,
        None,
    )
    assert policy.channels is None
    keys = {"late": "2 hours", "rows.factor": 3, "channels": ["a", "b"], "balance": False}
    policy = read_job(document(keys)).alerts
    assert (policy.late, policy.rows_factor, policy.balance) == (2 * HOUR, 3.0, False)
    assert policy.channels == ("a", "b")
    wrong = {"late": "soon", "rows.factor": 1, "duration.factor": "inf", "empti": True}
    with pytest.raises(ConfigErrors) as raised:
        read_job(document({**wrong, "channels": ["a"]}))
    assert {error.field for error in raised.value.errors} == {"alerts.empti"}
    del wrong["empti"]
    with pytest.raises(ConfigErrors) as raised:
        read_job(document(wrong))
    assert {error.field for error in raised.value.errors} == {
        "alerts.late",
        "alerts.rows.factor",
        "alerts.duration.factor",
    }
    others: list[Any] = [[], "log", False]
    for other in others:
        with pytest.raises(ConfigErrors, match="mapping"):
            read_job(document(other))


def test_a_job_names_only_channels_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.control.jobs.check_job", lambda d, *_: read_job(d))
    jobs = Jobs(
        store=JobStore(memory_database()),
        registry=Registry(),
        clock=lambda: NOW,
        channels=["log", "ops"],
    )
    jobs.create(document({"channels": ["ops"]}, catchup=CatchUp.NONE.value), "ann")
    with pytest.raises(ConfigError, match="'oops'") as raised:
        jobs.edit("orders", document({"channels": ["ops", "oops"]}), "ann")
    assert raised.value.field == "alerts.channels"
    assert raised.value.fix == "Use log or ops, or add it to the server's setting alerts."
