"""The harness that the acceptance kit runs connectors in: Headrace's own runtime."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.acceptance.bench import (
    NAME,
    SINK,
    SOURCE,
    Bench,
    KitRegistry,
    OpenedTask,
    RunningRuntime,
    connector_context,
    now,
    run_offline,
)
from headrace.acceptance.memory import Feed, Target, feed_source, hooked_sink, memory_sink
from headrace.control import check_definition
from headrace.model import Definition, PluginSpec, TaskId
from headrace.sdk import (
    Connector,
    HeadraceError,
    Position,
    Schema,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from headrace.store import Store
from headrace.worker import StoredTaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.sdk.testing.driver import Arrived, Point, Row

_LONG = timedelta(hours=1)


@dataclass(kw_only=True)
class SourceBench(Bench):
    """A source under test with a target in memory and one store.

    The target and the store outlive the tasks, as a real target and disk would.
    """

    connector: type[SourceConnector]
    target: Target = field(default_factory=Target)

    def open(
        self,
        *,
        rows: int | None = None,
        task: int = 0,
        hook: Callable[[Point], None] | None = None,
    ) -> OpenedTask:
        """Start a task; ``rows`` limits its batches."""
        return self.open_task(self._registry(hook), task, rows=rows)

    def tasks(self, at_most: int) -> int:
        """Set the maximum number of tasks, and return the number that the connector plans."""
        self.tasks_max = at_most
        return len(self.plans(self._registry()))

    def run(self) -> None:
        """Run the connector offline: to the end of the existing data."""
        run_offline(self.runtime(self._registry()), self.definition())

    def start(self, *, rows: int | None = None) -> RunningRuntime:
        return RunningRuntime(self.runtime(self._registry()), self.definition(rows=rows))

    def arrived(self) -> list[Arrived]:
        return list(self.target.records)

    def _registry(self, hook: Callable[[Point], None] | None = None) -> KitRegistry:
        return KitRegistry(self.connector, hooked_sink(memory_sink(self.target), hook))


@dataclass(kw_only=True)
class SinkBench(Bench):
    """A sink under test with a source in memory: each ``feed`` is a batch."""

    connector: type[SinkConnector]
    fed: Feed = field(default_factory=Feed)

    def feed(self, rows: Sequence[Row], schema: Schema, *, task: int = 0) -> None:
        self.fed.batches.setdefault(task, []).append((rows, schema))

    def open(self, *, task: int = 0, hook: Callable[[Point], None] | None = None) -> OpenedTask:
        self.tasks_max = max(self.tasks_max, task + 1)
        registry = KitRegistry(feed_source(self.fed), hooked_sink(self.connector, hook))
        return self.open_task(registry, task, rows=None)

    def copied(self) -> SinkBench:
        """Return a bench of the same tasks with a copy of their store.

        It continues from this bench's state with its own batches, like a store that was
        restored from a backup, or a database server that took over with a lag.
        """
        return replace(self, home=self.copy_store(), fed=self.fed.copied())


@dataclass(kw_only=True)
class CaptureBench(Bench):
    """A capture under test with the durable position that the runtime stores for it."""

    connector: type[SourceConnector]

    def __post_init__(self) -> None:
        self._task = TaskId(NAME, 0)
        self._store = self.store()
        self._lease = self._store.lease(self._task, "kit", now(), _LONG)

    def start(self) -> SourceTask:
        """Return a new task object, started at the durable position."""
        task = _source_task(self.connector, self.source_config(), self._store)
        folder = self.home / "scratch"
        task.start(StoredTaskContext(self._store, self._lease, folder, threading.Event()))
        return task

    def position(self) -> Position:
        return self._store.position(self._task)

    def advance(self, position: Position) -> None:
        self._store.set_position(self._task, self._lease.epoch, position)

    @override
    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True)
class Harness:
    """Runs connectors for the kit: each bench has its state in its ``home``.

    ``config`` is called at each start, as the configuration may change.
    """

    spark: SparkSession

    def problems(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> list[HeadraceError]:
        """Return the validation errors of a configuration."""
        source, sink = feed_source(Feed()), memory_sink(Target())
        of_source: Mapping[str, str] = {}
        of_sink: Mapping[str, str] = {}
        if issubclass(connector, SourceConnector):
            source, of_source = connector, config
        elif issubclass(connector, SinkConnector):
            sink, of_sink = connector, config
        definition = Definition(
            name=NAME,
            source=PluginSpec(SOURCE, dict(of_source)),
            sinks=(PluginSpec(SINK, dict(of_sink)),),
        )
        return list(check_definition(definition, KitRegistry(source, sink)).errors)

    def source(
        self,
        connector: type[SourceConnector],
        config: Callable[[], Mapping[str, str]],
        home: Path,
    ) -> closing[SourceBench]:
        return closing(
            SourceBench(spark=self.spark, home=home, source_config=config, connector=connector)
        )

    def capture(
        self,
        connector: type[SourceConnector],
        config: Callable[[], Mapping[str, str]],
        home: Path,
    ) -> closing[CaptureBench]:
        return closing(
            CaptureBench(spark=self.spark, home=home, source_config=config, connector=connector)
        )

    def sink(
        self,
        connector: type[SinkConnector],
        config: Callable[[], Mapping[str, str]],
        home: Path,
    ) -> closing[SinkBench]:
        return closing(
            SinkBench(spark=self.spark, home=home, sink_config=config, connector=connector)
        )

    def unstarted(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> SourceTask | SinkTask:
        """Return a new task object that is not started."""
        if issubclass(connector, SourceConnector):
            return _source_task(connector, config, Store())
        assert issubclass(connector, SinkConnector)
        return connector.task(connector.config_def().parse(config))


def _source_task(
    connector: type[SourceConnector], config: Mapping[str, str], store: Store
) -> SourceTask:
    started = connector()
    started.start(connector.config_def().parse(config), connector_context(store))
    try:
        (first, *_) = started.task_configs(1)
    finally:
        started.stop()
    return connector.task(connector.config_def().parse(first))
