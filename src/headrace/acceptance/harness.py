"""The harness that the acceptance kit runs connectors in: Headrace's own runtime.

A bench opens tasks of one definition one after the other on one store, as new processes would.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.acceptance.memory import Feed, Target, feed_source, hooked_sink, memory_sink
from headrace.control import TaskPlan, check_definition, plan_tasks
from headrace.model import Batch, Definition, Lease, PluginSpec, TaskId, TaskState
from headrace.plugins import Registry
from headrace.runtime.app import Runtime
from headrace.runtime.tasks import Assembler, Parts
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
from headrace.sdk.location import Location
from headrace.sdk.testing.driver import Arrived, DeadLetter, Moved
from headrace.settings import load_settings
from headrace.store import Store, now
from headrace.topics import Topics, peek
from headrace.worker import Outcome, StoredConnectorContext, StoredTaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.sdk import ReadLimit
    from headrace.sdk.testing.driver import Point, Row

NAME = "acceptance"
SOURCE, SINK = "source", "sink"
_POLL = {"poll.interval.ms": "50"}
_MOST_LETTERS = 1000
_LEASE = timedelta(microseconds=1)
"""Leases expire at once, so that a new task takes over from a killed one."""
_LONG = timedelta(hours=1)


class KitRegistry(Registry):
    """A registry of the plugins under test, which need not be installed."""

    def __init__(self, source: type[SourceConnector], sink: type[SinkConnector]) -> None:
        super().__init__()
        self._source, self._sink = source, sink

    @override
    def source(self, name: str, *, field: str | None = None) -> type[SourceConnector]:
        return self._source

    @override
    def sink(self, name: str, *, field: str | None = None) -> type[SinkConnector]:
        return self._sink


@dataclass(kw_only=True)
class Bench:
    """One connector's definition, its state in ``home``, and its opened tasks."""

    spark: SparkSession
    home: Path
    source_config: Callable[[], Mapping[str, str]] = dict
    sink_config: Callable[[], Mapping[str, str]] = dict
    tasks_max: int = 1
    tolerant: bool = False
    _opened: list[OpenedTask] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The connector's name."""
        return NAME

    def definition(self, *, rows: int | None = None) -> Definition:
        common = {**_POLL, "tasks.max": str(self.tasks_max)}
        if self.tolerant:
            common["errors.tolerance"] = "all"
        if rows is not None:
            common["batch.max.rows"] = str(rows)
        return Definition(
            name=NAME,
            source=PluginSpec(SOURCE, dict(self.source_config())),
            sinks=(PluginSpec(SINK, dict(self.sink_config())),),
            common=common,
        )

    def plans(self, registry: Registry, *, rows: int | None = None) -> list[TaskPlan]:
        store = self.store()
        try:
            context = connector_context(store)
            return plan_tasks(self.definition(rows=rows), registry, context, lambda _: ())
        finally:
            store.close()

    def open_task(self, registry: Registry, task: int, *, rows: int | None) -> OpenedTask:
        """Start a task with its own plugin objects and store connection."""
        plan = self.plans(registry, rows=rows)[task]
        opened = OpenedTask(self, plan)
        self._opened.append(opened)
        return opened

    def runtime(self, registry: Registry) -> Runtime:
        """Return a runtime with the same state and session."""
        runtime = Runtime(load_settings(home=self.home), self.store())
        runtime.spark = self.spark
        runtime.registry = registry
        return runtime

    def store(self) -> Store:
        self.home.mkdir(parents=True, exist_ok=True)
        return Store(self.home / "store.db")

    def copy_store(self) -> Path:
        """Copy the store to another home folder, and return the folder."""
        home = self.home.with_name(f"{self.home.name}-copy")
        home.mkdir(parents=True)
        with (
            closing(sqlite3.connect(self.home / "store.db")) as here,
            closing(sqlite3.connect(home / "store.db")) as there,
        ):
            here.backup(there)
        return home

    def dead_letters(self) -> list[DeadLetter]:
        topic = Topics(Location.of(self.home / "topics")).get(f"{NAME}.dlq")
        letters = peek(topic, _MOST_LETTERS, oldest=True)
        values = [(each["cause"]["stage"], each["value"]) for each in letters]
        return [
            DeadLetter(stage, json.loads(value) if isinstance(value, str) else value)
            for stage, value in values
        ]

    def close(self) -> None:
        """Stop the abandoned tasks."""
        for opened in self._opened:
            with suppress(Exception):  # a killed task may not be able to stop
                opened.close()


class OpenedTask:
    """A task with its own plugin objects, as in a new process.

    It takes over the lease from the former owner. A task that is not closed is abandoned, and
    closed with its bench.
    """

    def __init__(self, bench: Bench, plan: TaskPlan) -> None:
        self._bench = bench
        self._store = bench.store()
        self._lease: Lease = self._store.lease(plan.id, f"kit-{id(self)}", now(), _LEASE)
        time.sleep(_LEASE.total_seconds())
        self._parts: Parts | None = None
        try:
            assembler = Assembler(
                store=self._store,
                topics=Topics(Location.of(bench.home / "topics")),
                scratch=bench.home / "scratch",
                state=bench.home / "state",
                clock=now,
                appended=lambda _: None,
            )
            self._parts = assembler.parts(bench.spark, plan, self._lease)
        except BaseException:
            self._store.close()
            raise

    def step(self) -> Moved | None:
        """Run one batch; return None if there is no new data."""
        batch = self._loop.step()
        return None if batch is None else Moved(batch.start, batch.end, batch.counts.read)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end: Position = self._loop.reader.latest(start, limit)
        return end

    def read(self, start: Position, end: Position) -> list[Arrived]:
        """Return the records of a range, in order; the task's position does not change."""
        target = Target()
        sink: Any = memory_sink(target).task({})  # type: ignore[arg-type]  # it has no keys
        flow: Any = replace(self._loop.flow, sinks=[sink], application="read")
        flow.run(Batch(self._lease.task, 1, self._lease.epoch, start, end, now()))
        return target.records

    def position(self) -> Position:
        position: Position = self._loop.position()
        return position

    def close(self) -> None:
        """Stop the plugins. Idempotent."""
        if self._parts is not None:
            parts, self._parts = self._parts, None
            try:
                parts.close()
            finally:
                self._store.close()

    @property
    def _loop(self) -> Any:
        if self._parts is None:
            message = "The task was closed."
            raise AssertionError(message)
        return self._parts.loop


class RunningRuntime:
    """A worker that runs the connector in real time, in another thread."""

    def __init__(self, runtime: Runtime, definition: Definition) -> None:
        self._runtime = runtime
        self._events = QuietEvents()
        self._thread = threading.Thread(
            target=self._run, args=(definition,), name="headrace-acceptance", daemon=True
        )
        self._raised: Exception | None = None
        self._thread.start()

    def stop(self, timeout: float) -> float | None:
        """Stop it; return the seconds it took, or None after ``timeout``."""
        began = time.monotonic()
        self._runtime.stop()
        self._thread.join(timeout)
        return None if self._thread.is_alive() else time.monotonic() - began

    def error(self) -> Exception | None:
        return self._raised or self._events.error

    def _run(self, definition: Definition) -> None:
        try:
            self._runtime.run([definition], self._events, once=False)
        except Exception as error:  # noqa: BLE001 - returned by error()
            self._raised = error
        finally:
            close_runtime(self._runtime)


class QuietEvents:
    """Events that store only the first error of a run."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """See Events."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self.error = self.error or error

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """See Events."""


def run_offline(runtime: Runtime, definition: Definition) -> None:
    """Run to the end of the existing data; raise the error of a failed task."""
    try:
        outcome: Outcome = runtime.run([definition], QuietEvents(), once=True)
    finally:
        close_runtime(runtime)
    for error in outcome.errors.values():
        raise error


def close_runtime(runtime: Runtime) -> None:
    """Close a runtime except for the session, which is shared."""
    del runtime.spark
    runtime.close()


def connector_context(store: Store) -> StoredConnectorContext:
    """Return the context of the kit's connector, which plans at each start."""

    def fail(error: Exception) -> None:
        raise error

    return StoredConnectorContext(store, NAME, lambda: None, fail)


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
