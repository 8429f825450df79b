"""Measures what a runtime does, for whoever asks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.metrics import Book, Exposition, Processes, Reporter, Reporting, Sampler
from headrace.sdk import ConfigError
from headrace.spark import JvmWatch
from headrace.worker import Everyone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from headrace.capture import HostSupervisor
    from headrace.control import Connectors, TaskPlan
    from headrace.plugins import Registry
    from headrace.settings import Settings
    from headrace.spark import SparkSupervisor
    from headrace.worker import Events


@dataclass
class Measuring:
    """What is measured in a process, and what is needed for it.

    Args:
        worker: The worker's name.
        settings: Say how often is looked, and who is told.
        registry: The installed plugins.
        clock: Gives the present, aware.
        scraped: Whether somebody may ask for the metrics.
    """

    worker: str
    settings: Settings
    registry: Registry
    clock: Callable[[], datetime]
    scraped: bool = False

    @cached_property
    def book(self) -> Book:
        """What is measured."""
        return Book(clock=self.clock, worker=self.worker, version=__version__)

    @cached_property
    def exposition(self) -> Exposition:
        """What a scraper gets."""
        return Exposition(self.book)

    def heard(self, events: Events) -> Events:
        """Return who learns what a worker does: others, and what measures it."""
        return Everyone([self.book, events])

    def planned(self, plan: TaskPlan) -> None:
        """Learn what a task is made of."""
        errors = plan.common.errors
        lettered = errors.tolerant and errors.dead_letter_topic is not None
        self.book.expect_letters(plan.id, expected=lettered)

    @contextmanager
    def running(
        self, spark: SparkSupervisor, hosts: HostSupervisor, served: Connectors | None = None
    ) -> Iterator[None]:
        """Look at what runs, and tell the reporters, for as long as this lasts.

        Where nobody wants to know nothing is looked at, as a look takes a start some time.

        Args:
            spark: Gives the session.
            hosts: The plugin hosts.
            served: The connectors of a server, whose metrics anyone may ask for.
        """
        if served is not None:
            self.scraped = True
            self.book.version_of = served.version_of
        if not (self.scraped or self.settings.reporters):
            yield
            return
        with self.reporting(), self.sampler(spark, hosts):
            yield

    def reporting(self) -> Reporting:
        """Return what tells the reporters. Raises what is wrong with their settings."""
        return Reporting(
            book=self.book,
            reporters={name: self._reporter(name) for name in self.settings.reporters},
            clock=self.clock,
            interval=self.settings.metrics_interval,
        )

    def _reporter(self, name: str) -> Reporter:
        keys = dict(self.settings.reporters[name])
        field = f"reporters.{name}"
        kind = keys.pop("type", None)
        if kind is None:
            problem = "It has no type."
            raise ConfigError(problem, field=field, fix="Name a plugin as its `type`.")
        plugin = self.registry.reporter(kind, field=field)
        return Reporter(plugin(), plugin.config_def().parse(keys))

    def sampler(self, spark: SparkSupervisor, hosts: HostSupervisor) -> Sampler:
        """Return what looks at the processes of the worker, at its JVM and at Spark."""
        watch = JvmWatch(spark.session)
        return Sampler(
            book=self.book,
            processes=Processes(lambda: watch.pid, lambda: hosts.pids),
            jvm=watch.look,
            clock=self.clock,
            interval=self.settings.metrics_interval,
        )
