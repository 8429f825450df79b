"""The metrics of a runtime, and the health checks of a server."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.control import Connectors
from headrace.metrics import Exposition, Processes, Reporter, Reporting, Sampler, WorkerMetrics
from headrace.model import SparkUnavailableError
from headrace.runtime.health import Finding, Health, HealthState, store_look
from headrace.sdk import ConfigError
from headrace.sdk.location import Location
from headrace.spark import JvmWatch, SparkSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from headrace.capture import HostSupervisor
    from headrace.plugins import Registry
    from headrace.runtime.app import Runtime
    from headrace.settings import Settings


@dataclass
class Measuring:
    """The metrics of a process, with their sampler and reporters.

    Args:
        scraped: Whether clients may scrape the metrics.
    """

    worker: str
    settings: Settings
    registry: Registry
    clock: Callable[[], datetime]
    scraped: bool = False

    @cached_property
    def book(self) -> WorkerMetrics:
        return WorkerMetrics(clock=self.clock, worker=self.worker, version=__version__)

    @cached_property
    def exposition(self) -> Exposition:
        return Exposition(self.book)

    @contextmanager
    def running(
        self, spark: SparkSupervisor, hosts: HostSupervisor, served: Connectors | None = None
    ) -> Iterator[None]:
        """Sample the process and run the reporters inside this context.

        Without scraping and reporters nothing is sampled, as it would slow down the start.
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
        """Return the loop that calls the reporters. Raises the errors of their settings."""
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
            problem = "The reporter has no type."
            raise ConfigError(problem, field=field, fix="Set its `type` to a plugin's name.")
        plugin = self.registry.reporter(kind, field=field)
        return Reporter(plugin(), plugin.config_def().parse(keys))

    def sampler(self, spark: SparkSupervisor, hosts: HostSupervisor) -> Sampler:
        watch = JvmWatch(spark.session)
        return Sampler(
            book=self.book,
            processes=Processes(lambda: watch.pid, lambda: hosts.pids),
            jvm=watch.look,
            clock=self.clock,
            interval=self.settings.metrics_interval,
        )


def health_checks(runtime: Runtime, store: Callable[[], object]) -> Health:
    """Return the health checks of a server; ``store`` runs any query on the store."""
    settings = runtime.settings
    folders = [Location.of(settings.home), settings.topics_dir]
    return Health(
        {
            "spark": lambda: _spark(runtime.engine),
            "store": store_look(store),
            "hosts": lambda: _hosts(runtime.hosts),
            "disk": lambda: _disk(folders, settings.health_free_bytes),
        }
    )


def _spark(engine: SparkSupervisor) -> Finding:
    try:
        if not engine.answers():
            return Finding(HealthState.UNHEALTHY, "Spark's JVM does not respond.")
    except SparkUnavailableError as error:
        return Finding(HealthState.DEGRADED, error.problem)
    again = engine.starts - 1
    more = f" Restarts: {again}." if again > 0 else ""
    return Finding(words=f"Spark's JVM responds.{more}")


def _hosts(hosts: HostSupervisor | None) -> Finding:
    if hosts is None:
        return Finding(words="No plugin host is needed.")
    if down := hosts.down:
        return Finding(HealthState.DEGRADED, f"No plugin host runs with {', '.join(down)}.")
    if silent := hosts.silent():
        words = (
            f"Plugin hosts that do not respond, by process id: {', '.join(map(str, silent))}."
        )
        return Finding(HealthState.DEGRADED, words)
    return Finding(words=f"Running plugin hosts: {len(hosts.pids)}.")


def _disk(folders: Sequence[Location], free_bytes: int) -> Finding:
    least: tuple[int, str] | None = None
    for folder in folders:
        free = folder.free_bytes()
        if free is None:
            continue  # it does not exist yet, or its file system does not report it
        try:
            if folder.is_local:
                with TemporaryFile(dir=folder.local) as file:
                    file.write(b"written")
        except OSError as error:
            words = f"{folder} cannot be written to: {error.strerror}. {free:,} bytes are free."
            return Finding(HealthState.UNHEALTHY, words)
        least = min(least or (free, str(folder)), (free, str(folder)))
    if least is None:
        return Finding(HealthState.UNHEALTHY, f"{folders[0]} does not exist.")
    state = HealthState.HEALTHY if least[0] >= free_bytes else HealthState.DEGRADED
    return Finding(state, f"{least[1]} has {least[0]:,} bytes free.")
