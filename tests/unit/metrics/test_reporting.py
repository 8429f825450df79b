"""Reporters get what is measured, each alone, and whoever fails or hangs harms nobody."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.unit.metrics.told import AT, empty, told
from tests.waiting import until

from headrace.metrics import Reporter, Reporting, WorkerMetrics
from headrace.sdk import MetricsReporter
from headrace.sdk.config import Config, ConfigDef
from headrace.sdk.worker_plugins import MetricSample


class Kept(MetricsReporter):
    """Keeps what it is told, after as many failures as it is given."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls: list[str] = []
        self.samples: list[Sequence[MetricSample]] = []
        self.before: Callable[[], Any] = lambda: None

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def configure(self, config: Config) -> None:
        self.calls.append("configure")
        if self.failures:
            raise self.failures.pop(0)

    def report(self, at: datetime, samples: Sequence[MetricSample]) -> None:
        self.calls.append("report")
        self.before()
        self.samples.append(samples)

    def close(self) -> None:
        self.calls.append("close")


def reporting(book: WorkerMetrics, **plugins: Kept) -> Reporting:
    config = ConfigDef().parse({})
    return Reporting(
        book=book,
        reporters={name: Reporter(plugin, config) for name, plugin in plugins.items()},
        clock=lambda: AT,
        interval=timedelta(milliseconds=2),
    )


def failures(book: WorkerMetrics, name: str) -> float:
    found = (
        sample.value
        for sample in book.samples()
        if sample.metric.name == "headrace_worker_reporter_failures"
        and sample.labels["reporter"] == name
    )
    return next(found)


def test_a_reporter_is_configured_told_again_and_again_and_closed():
    kept, book = Kept(), told()
    with reporting(book, one=kept):
        until(lambda: len(kept.samples) > 2)
    assert kept.calls[0] == "configure"
    assert kept.calls[-1] == "close"
    assert set(kept.calls[1:-1]) == {"report"}
    names = {sample.name for sample in kept.samples[0]}
    assert {"headrace_task_records_read_total", "headrace_worker_info"} <= names
    assert failures(book, "one") == 0


def test_the_samples_of_a_metric_follow_each_other():
    kept = Kept()
    with reporting(told(), one=kept):
        until(lambda: kept.samples)
    order = [sample.metric.name for sample in kept.samples[0]]
    changes = [
        name for before, name in zip(["", *order], order, strict=False) if before != name
    ]
    assert len(changes) == len(set(order))


def test_a_reporter_that_cannot_be_configured_is_tried_again():
    kept, book = Kept(OSError("full"), OSError("full")), empty()
    with reporting(book, one=kept):
        until(lambda: kept.samples)
    assert kept.calls[:3] == ["configure"] * 3
    assert failures(book, "one") == 2


def test_a_reporter_that_fails_is_called_again_and_others_go_on():
    bad, good, book = Kept(), Kept(), empty()

    def fail() -> None:
        raise ValueError

    bad.before = fail
    with reporting(book, bad=bad, good=good):
        until(lambda: bad.calls.count("report") > 2 and len(good.samples) > 2)
    assert failures(book, "bad") > 2
    assert failures(book, "good") == 0
    assert bad.calls[-1] == "close"


def test_a_reporter_that_hangs_keeps_nobody_from_ending():
    hung, good, over = Kept(), Kept(), threading.Event()
    hung.before = over.wait
    with reporting(empty(), hung=hung, good=good):
        until(lambda: "report" in hung.calls and len(good.samples) > 2)
    assert "close" not in hung.calls
    over.set()
    until(lambda: "close" in hung.calls)
