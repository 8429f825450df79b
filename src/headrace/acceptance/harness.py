"""The harness that the acceptance kit runs connectors in: Headrace's own runtime."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.acceptance.bench import (
    NAME,
    SINK,
    SOURCE,
    Bench,
    KitRegistry,
    OpenedTask,
    RunningRuntime,
    ignore_request,
    now,
    problems,
    raise_error,
    run_offline,
)
from headrace.acceptance.memory import Feed, Target, feed_source, hooked_sink, memory_sink
from headrace.model import Definition, PluginSpec, TaskId
from headrace.sdk import SinkConnector, SourceConnector, SourceTask
from headrace.store import SqlStore
from headrace.worker import StoredConnectorContext, StoredTaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.sdk import Connector, HeadraceError, Position, Schema, SinkTask
    from headrace.sdk.testing import Arrived, Configs, DeadLetter, Point, Row
    from headrace.store import Store

_LONG = timedelta(hours=1)


@dataclass
class _SourceBench:
    """See ``headrace.sdk.testing.SourceBench``."""

    bench: Bench
    connector: type[SourceConnector]
    target: Target = field(default_factory=Target)

    def open(
        self,
        *,
        rows: int | None = None,
        task: int = 0,
        hook: Callable[[Point], None] | None = None,
    ) -> OpenedTask:
        return self.bench.open_task(self._registry(hook), task, rows=rows)

    def tasks(self, at_most: int) -> int:
        self.bench.tasks_max = at_most
        return len(self.bench.plans(self._registry()))

    def run(self) -> None:
        run_offline(self.bench.runtime(self._registry()), self.bench.definition())

    def start(self, *, rows: int | None = None) -> RunningRuntime:
        runtime = self.bench.runtime(self._registry())
        return RunningRuntime(runtime, self.bench.definition(rows=rows))

    def arrived(self) -> list[Arrived]:
        return list(self.target.records)

    def _registry(self, hook: Callable[[Point], None] | None = None) -> KitRegistry:
        return KitRegistry(self.connector, hooked_sink(memory_sink(self.target), hook))


@dataclass
class _SinkBench:
    """See ``headrace.sdk.testing.SinkBench``."""

    bench: Bench
    connector: type[SinkConnector]
    fed: Feed = field(default_factory=Feed)
    _copies: list[Bench] = field(default_factory=list)

    def feed(self, rows: Sequence[Row], schema: Schema, *, task: int = 0) -> None:
        self.fed.add(task, rows, schema)

    def open(self, *, task: int = 0, hook: Callable[[Point], None] | None = None) -> OpenedTask:
        self.bench.tasks_max = max(self.bench.tasks_max, task + 1)
        registry = KitRegistry(feed_source(self.fed), hooked_sink(self.connector, hook))
        return self.bench.open_task(registry, task, rows=None)

    def tolerate(self) -> None:
        self.bench.tolerant = True

    def dead_letters(self) -> list[DeadLetter]:
        return self.bench.dead_letters()

    def copied(self) -> _SinkBench:
        bench = self.bench.copied()
        self._copies.append(bench)
        return _SinkBench(bench, self.connector, self.fed.copied())

    def close(self) -> None:
        for bench in (self.bench, *self._copies):
            bench.close()


@dataclass
class _CaptureBench:
    """See ``headrace.sdk.testing.CaptureBench``."""

    bench: Bench
    connector: type[SourceConnector]

    def __post_init__(self) -> None:
        self._task = TaskId(NAME, 0)
        self._store = self.bench.store()
        self._lease = self._store.lease(self._task, "kit", now(), _LONG)

    def start(self) -> SourceTask:
        task = _source_task(self.connector, self.bench.source_config(), self._store)
        folder = self.bench.home / "scratch"
        task.start(StoredTaskContext(self._store, self._lease, folder, threading.Event()))
        return task

    def position(self) -> Position:
        return self._store.position(self._task)

    def advance(self, position: Position) -> None:
        self._store.set_position(self._task, self._lease.epoch, position)

    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True)
class RuntimeHarness:
    """See ``headrace.sdk.testing.Harness``."""

    spark: SparkSession

    def problems(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> list[HeadraceError]:
        """Return what validation finds wrong with a configuration."""
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
        return problems(KitRegistry(source, sink), definition)

    @contextmanager
    def source(
        self,
        connector: type[SourceConnector],
        config: Configs,
        home: Path,
    ) -> Iterator[_SourceBench]:
        """Return a bench for a source."""
        bench = Bench(spark=self.spark, home=home, source_config=config)
        try:
            yield _SourceBench(bench, connector)
        finally:
            bench.close()

    @contextmanager
    def capture(
        self,
        connector: type[SourceConnector],
        config: Configs,
        home: Path,
    ) -> Iterator[_CaptureBench]:
        """Return a bench for a capture."""
        bench = Bench(spark=self.spark, home=home, source_config=config)
        capture = _CaptureBench(bench, connector)
        try:
            yield capture
        finally:
            capture.close()

    @contextmanager
    def sink(
        self,
        connector: type[SinkConnector],
        config: Configs,
        home: Path,
    ) -> Iterator[_SinkBench]:
        """Return a bench for a sink."""
        bench = _SinkBench(Bench(spark=self.spark, home=home, sink_config=config), connector)
        try:
            yield bench
        finally:
            bench.close()

    def unstarted(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> SourceTask | SinkTask:
        """Return a task object that was made and not started."""
        if not issubclass(connector, SourceConnector | SinkConnector):
            message = f"{connector.__name__} is neither a source nor a sink."
            raise TypeError(message)
        if issubclass(connector, SourceConnector):
            return _source_task(connector, config, SqlStore())
        return connector.task(connector.config_def().parse(config))


def _source_task(
    connector: type[SourceConnector], config: Mapping[str, str], store: Store
) -> SourceTask:
    started = connector()
    started.start(
        connector.config_def().parse(config),
        StoredConnectorContext(store, NAME, ignore_request, raise_error),
    )
    try:
        (first, *_) = started.task_configs(1)
    finally:
        started.stop()
    return connector.task(connector.config_def().parse(first))
