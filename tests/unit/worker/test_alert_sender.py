"""Alerts are sent by each channel apart, again after errors, and given up after a day."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from structlog.testing import capture_logs
from tests.waiting import until
from typing_extensions import override

from headrace.plugins import Secrets
from headrace.sdk import Alert, AlertChannel, ConfigError, RetriableError
from headrace.sdk.config import Config
from headrace.store import AlertStore, Delivery, NewAlert, memory_database
from headrace.worker import AlertSender

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = timedelta(milliseconds=5)
DAY = timedelta(days=1)


@dataclass
class Channel(AlertChannel):
    """Does what it is told, and remembers it."""

    fails: list[Exception] = field(default_factory=list)
    hangs: threading.Event | None = None
    got: list[str] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    def open(self) -> AlertChannel:
        self.opened += 1
        return self

    @override
    def configure(self, config: Config) -> None: ...

    @override
    def send(self, alert: Alert) -> None:
        if self.hangs is not None:
            self.hangs.wait(20)
        if self.fails:
            raise self.fails.pop(0)
        self.got.append(alert.id)

    @override
    def close(self) -> None:
        self.closed += 1


@dataclass
class Bench:
    """A sender over a store in memory, and a clock that is set."""

    channels: dict[str, Channel]
    now: datetime = NOW
    store: AlertStore = field(default_factory=lambda: AlertStore(memory_database()))
    failed: list[str] = field(default_factory=list)
    secrets: Secrets = field(default_factory=Secrets)

    def __post_init__(self) -> None:
        self.sender = AlertSender(
            store=self.store,
            owner="w1",
            is_dead=lambda _: False,
            clock=lambda: self.now,
            lease_clock=lambda: self.now,
            channels={name: channel.open for name, channel in self.channels.items()},
            failed=self.failed.append,
            redact=self.secrets.redacted_error,
            interval=SOON,
        )

    def add(self, *names: str) -> None:
        made = [
            Alert(id=name, kind="failed", at=self.now, job="j", subject=f"S {name}", text="t")
            for name in names
        ]
        self.store.add([NewAlert(each, list(self.channels)) for each in made])

    @contextmanager
    def sending(self) -> Iterator[None]:
        with self.sender.sending():
            yield

    def ways(self, name: str) -> dict[str, Delivery]:
        [found] = [each for each in self.store.alerts() if each.alert.id == name]
        return {each.channel: each for each in found.deliveries}


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_alerts_go_to_each_channel_in_their_order() -> None:
    bench = Bench({"a": Channel(), "b": Channel()})
    bench.add("1", "2")
    with bench.sending():
        bench.add("3")
        until(lambda: all(len(each.got) == 3 for each in bench.channels.values()))
    assert bench.channels["a"].got == bench.channels["b"].got == ["1", "2", "3"]
    assert bench.channels["a"].opened == bench.channels["a"].closed == 1
    assert {way.state for way in bench.ways("3").values()} == {"sent"}


def test_a_channel_that_hangs_delays_no_other_and_not_the_end(hung: threading.Event) -> None:
    bench = Bench({"a": Channel(hangs=hung), "b": Channel()})
    bench.add("1", "2")
    begun = time.monotonic()
    with bench.sending():
        until(lambda: len(bench.channels["b"].got) == 2)
    assert time.monotonic() - begun < 10
    assert bench.channels["a"].got == []
    assert {name: way.state for name, way in bench.ways("1").items()} == {
        "a": "waiting",
        "b": "sent",
    }


def test_one_that_fails_is_opened_anew_and_tried_after_waits_that_double() -> None:
    errors: list[Exception] = [RetriableError("away") for _ in range(3)]
    bench = Bench({"a": Channel(fails=errors)})
    bench.add("1")
    waits = []
    with bench.sending():
        for failures in range(1, 4):
            until(lambda: len(bench.failed) == failures)  # noqa: B023 - used within the loop
            until(lambda: bench.ways("1")["a"].due > bench.now)
            time.sleep(0.05)
            way = bench.ways("1")["a"]
            assert (way.state, way.attempts) == ("waiting", failures)
            assert way.error == "[task.retriable] away"
            waits.append((way.due - bench.now).total_seconds())
            bench.now = way.due
        until(lambda: bench.channels["a"].got == ["1"])
    assert waits == [5, 10, 20]
    assert bench.channels["a"].opened == bench.channels["a"].closed == 4
    assert bench.failed == ["a"] * 3


def test_a_wait_is_as_long_as_the_channel_asks_and_has_an_end() -> None:
    sender = Bench({"a": Channel()}).sender
    assert sender._wait(1, ValueError()) == timedelta(seconds=5)
    assert sender._wait(99, ValueError()) == timedelta(minutes=15)
    asked = RetriableError("busy", after=timedelta(minutes=30))
    assert sender._wait(1, asked) == timedelta(minutes=30)
    assert sender._wait(1, RetriableError("busy", after=99 * DAY)) == DAY


def test_a_channel_that_cannot_be_opened_is_tried_again() -> None:
    bench = Bench({"a": Channel()})
    tries: list[Callable[[], AlertChannel]] = [bench.channels["a"].open]

    def opened() -> AlertChannel:
        if len(tries) == 1:
            tries.append(bench.channels["a"].open)
            raise ConfigError(field="password")
        return tries[0]()

    bench.sender.channels = {"a": opened}
    bench.add("1")
    with bench.sending():
        until(lambda: bench.failed == ["a"])
        until(lambda: bench.ways("1")["a"].due > bench.now)
        bench.now += timedelta(minutes=1)
        until(lambda: bench.channels["a"].got == ["1"])


def test_after_a_day_an_alert_is_given_up_and_the_log_says_so() -> None:
    bench = Bench({"a": Channel(fails=[RetriableError("away")])})
    bench.add("1")
    with bench.sending():
        until(lambda: bench.ways("1")["a"].due > bench.now)
    bench.now = NOW + DAY - SOON
    bench.sender.clean()
    assert bench.ways("1")["a"].state == "waiting"
    bench.now = NOW + DAY
    structlog.reset_defaults()
    with capture_logs() as logs:
        bench.sender.clean()
        bench.sender.clean()
    [line] = logs
    assert line["event"] == "alert given up: it could not be sent"
    assert (line["log_level"], line["channel"], line["subject"]) == ("error", "a", "S 1")
    assert line["why"] == "[task.retriable] away"
    assert bench.ways("1")["a"].state == "given_up"
    bench.now += 90 * DAY
    bench.sender.clean()
    assert bench.store.alerts() == []


def test_no_secret_is_stored_with_an_error() -> None:
    bench = Bench({"a": Channel(fails=[ValueError("refused hunter2-of-tests")])})
    bench.secrets.remember(["hunter2-of-tests"])
    bench.add("1")
    with bench.sending():
        until(lambda: bench.ways("1")["a"].error is not None)
    assert "hunter2" not in str(bench.ways("1")["a"].error)
    assert "[hidden]" in str(bench.ways("1")["a"].error)


def test_a_command_that_ends_sends_what_is_due_first(hung: threading.Event) -> None:
    bench = Bench({"a": Channel(), "b": Channel(fails=[ValueError("x")])})
    bench.add("1")
    bench.sender.drain(timedelta(seconds=20))
    assert bench.channels["a"].got == ["1"]
    assert bench.ways("1")["b"].state == "waiting"
    slow = Bench({"a": Channel(hangs=hung)})
    slow.add("1")
    begun = time.monotonic()
    slow.sender.drain(timedelta(milliseconds=100))
    assert time.monotonic() - begun < 10
    idle = Bench({"a": Channel()})
    idle.sender.drain(timedelta(seconds=20))
    assert idle.channels["a"].opened == 0


def test_a_trial_says_of_each_channel_what_became_of_it(hung: threading.Event) -> None:
    good, bad = Channel(), Channel(fails=[RetriableError("away hunter2-of-tests")])
    bench = Bench({"good": good, "bad": bad, "hung": Channel(hangs=hung)})
    bench.secrets.remember(["hunter2-of-tests"])
    trial = Alert(id="t", kind="test", at=NOW, job="", subject="s", text="t")
    found = bench.sender.try_all(trial, timedelta(seconds=3))
    assert {each.channel: each.error for each in found} == {
        "good": None,
        "bad": "[task.retriable] away [hidden]",
        "hung": "The channel does not respond.",
    }
    assert good.got == ["t"]
    assert (good.closed, bad.closed) == (1, 1)
    assert bench.store.alerts() == []
