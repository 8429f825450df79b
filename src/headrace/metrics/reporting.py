"""Calls the reporters with the metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import structlog

from headrace.metrics import series

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from headrace.metrics.worker_metrics import WorkerMetrics
    from headrace.sdk import MetricsReporter
    from headrace.sdk.config import Config


log = structlog.get_logger(__name__)


_PATIENCE_SECONDS = 2.0
"""The timeout for a last report at the end."""


@dataclass(frozen=True)
class Reporter:
    """A reporter of the settings: the plugin, and its configuration."""

    plugin: MetricsReporter
    config: Config


@dataclass(kw_only=True)
class Reporting:
    """Reports periodically, to each reporter in a separate thread. A context manager.

    A reporter that raises is logged, counted and called again. A reporter that hangs misses
    reports, and does not block the end.
    """

    book: WorkerMetrics
    reporters: Mapping[str, Reporter]
    clock: Callable[[], datetime]
    interval: timedelta
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for name, reporter in self.reporters.items():
            self._count(name, 0)
            thread = threading.Thread(
                target=self._run,
                args=(name, reporter),
                name=f"headrace-reporter-{name}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _run(self, name: str, reporter: Reporter) -> None:
        with structlog.contextvars.bound_contextvars(reporter=name):
            ready = self._works(name, lambda: reporter.plugin.configure(reporter.config))
            while True:
                over = self._over.wait(self.interval.total_seconds())
                if not ready:
                    ready = self._works(
                        name, lambda: reporter.plugin.configure(reporter.config)
                    )
                if ready:
                    self._works(
                        name,
                        lambda: reporter.plugin.report(self.clock(), self.book.samples()),
                    )
                if over:
                    break
            self._works(name, reporter.plugin.close)

    def _works(self, name: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; others continue
            log.warning("reporter failed", why=f"{type(error).__name__}: {error}")
            self._count(name, 1)
            return False
        return True

    def _count(self, name: str, failures: int) -> None:
        self.book.write(
            lambda page: page.add(series.REPORTER_FAILURES, failures, reporter=name)
        )
