"""Tasks of one definition, opened one after the other over one store, as processes are."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.acceptance.memory import Target, memory_sink
from headrace.control import check_definition, plan_tasks
from headrace.model import Batch, Definition, PluginSpec
from headrace.plugins import Registry
from headrace.runtime.app import Runtime
from headrace.runtime.build import Assembler
from headrace.sdk.location import Location
from headrace.sdk.testing import DeadLetter, Moved
from headrace.settings import load_settings
from headrace.store import SqlStore
from headrace.topics import Topics, peek
from headrace.worker import StoredConnectorContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.control import TaskPlan
    from headrace.model import Lease, TaskId, TaskState
    from headrace.runtime.build import Parts
    from headrace.sdk import (
        HeadraceError,
        Position,
        ReadLimit,
        SinkConnector,
        SourceConnector,
    )
    from headrace.sdk.testing import Arrived
    from headrace.worker import Outcome

NAME = "acceptance"
SOURCE, SINK = "source", "sink"
_POLL = {"poll.interval.ms": "50"}
_MOST_LETTERS = 1000
_LEASE = timedelta(microseconds=1)
"""Leases end at once, so that a new task takes over from one that was killed."""


def now() -> datetime:
    """Return the present, aware."""
    return datetime.now(UTC)


class KitRegistry(Registry):
    """Knows the plugins under test, which need not be installed."""

    def __init__(self, source: type[SourceConnector], sink: type[SinkConnector]) -> None:
        """Give ``source`` and ``sink`` whatever the name."""
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
    """One connector's definition, its state in ``home``, and the tasks that were opened."""

    spark: SparkSession
    home: Path
    source_config: Callable[[], Mapping[str, str]] = dict
    sink_config: Callable[[], Mapping[str, str]] = dict
    tasks_max: int = 1
    tolerant: bool = False
    _opened: list[OpenedTask] = field(default_factory=list)

    def definition(self, *, rows: int | None = None) -> Definition:
        """Return the definition as it is now."""
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
        """Return the tasks' plans."""
        store = self.store()
        try:
            context = StoredConnectorContext(store, NAME, ignore_request, raise_error)
            return plan_tasks(self.definition(rows=rows), registry, context, lambda _: ())
        finally:
            store.close()

    def open_task(self, registry: Registry, task: int, *, rows: int | None) -> OpenedTask:
        """Start a task with objects and a store connection of its own."""
        plan = self.plans(registry, rows=rows)[task]
        opened = OpenedTask(self, plan)
        self._opened.append(opened)
        return opened

    def runtime(self, registry: Registry) -> Runtime:
        """Return a runtime over the same state, with the session that is there."""
        runtime = Runtime(load_settings(home=self.home), self.store())
        runtime.spark = self.spark
        runtime.registry = registry
        return runtime

    def store(self) -> SqlStore:
        """Open the store, as each process does."""
        self.home.mkdir(parents=True, exist_ok=True)
        return SqlStore(self.home / "store.db")

    def copied(self) -> Bench:
        """Return a bench with a copy of this one's store."""
        other = replace(self, home=self.home.with_name(f"{self.home.name}-copy"), _opened=[])
        other.store().close()
        with (
            closing(sqlite3.connect(self.home / "store.db")) as here,
            closing(sqlite3.connect(other.home / "store.db")) as there,
        ):
            here.backup(there)
        return other

    def dead_letters(self) -> list[DeadLetter]:
        """Return what was dead-lettered, the oldest first."""
        topic = Topics(Location.of(self.home / "topics")).get(f"{NAME}.dlq")
        letters = peek(topic, _MOST_LETTERS, oldest=True)
        return [DeadLetter(each["cause"]["stage"], _parsed(each["value"])) for each in letters]

    def close(self) -> None:
        """Stop the tasks that were abandoned."""
        for opened in self._opened:
            with suppress(Exception):  # what a kill left behind may not be able to stop
                opened.close()


class OpenedTask:
    """A running task; see ``headrace.sdk.testing.OpenSource``."""

    def __init__(self, bench: Bench, plan: TaskPlan) -> None:
        """Take the task's lease and start its plugins."""
        self._bench = bench
        self._store = bench.store()
        self._lease: Lease = self._store.lease(plan.id, f"kit-{id(self)}", now(), _LEASE)
        time.sleep(_LEASE.total_seconds())
        self._parts: Parts | None = None
        try:
            self._parts = _assembler(bench, self._store).parts(bench.spark, plan, self._lease)
        except BaseException:
            self._store.close()
            raise

    def step(self) -> Moved | None:
        """Run one batch."""
        batch = self._loop.step()
        return None if batch is None else Moved(batch.start, batch.end, batch.counts.read)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Ask the source."""
        end: Position = self._loop.reader.latest(start, limit)
        return end

    def read(self, start: Position, end: Position) -> list[Arrived]:
        """Read a range through the flow, into a target that is thrown away."""
        target = Target()
        sink: Any = memory_sink(target).task({})  # type: ignore[arg-type]  # it has no keys
        flow: Any = replace(self._loop.flow, sinks=[sink], application="read")
        flow.run(Batch(self._lease.task, 1, self._lease.epoch, start, end, now()))
        return target.records

    def position(self) -> Position:
        """Return where the task stands."""
        position: Position = self._loop.position()
        return position

    def close(self) -> None:
        """Stop the plugins; again changes nothing."""
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
    """A runtime in a thread of its own; see ``headrace.sdk.testing.Running``."""

    def __init__(self, runtime: Runtime, definition: Definition) -> None:
        """Start it."""
        self._runtime = runtime
        self._events = QuietEvents()
        self._thread = threading.Thread(
            target=self._run, args=(definition,), name="headrace-acceptance", daemon=True
        )
        self._raised: Exception | None = None
        self._thread.start()

    def stop(self, patience: float) -> float | None:
        """Stop it and wait."""
        began = time.monotonic()
        self._runtime.stop()
        self._thread.join(patience)
        return None if self._thread.is_alive() else time.monotonic() - began

    def error(self) -> Exception | None:
        """Return what made a task fail."""
        return self._raised or self._events.error

    def _run(self, definition: Definition) -> None:
        try:
            self._runtime.run([definition], self._events, once=False)
        except Exception as error:  # noqa: BLE001 - given to whoever asks for it
            self._raised = error
        finally:
            close_runtime(self._runtime)


class QuietEvents:
    """Keeps the first error of a run, and nothing else."""

    def __init__(self) -> None:
        """Begin without an error."""
        self.error: Exception | None = None

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """See Events."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self.error = self.error or error

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """See Events."""


def run_offline(runtime: Runtime, definition: Definition) -> None:
    """Run to the end of what is there; raise what made a task fail."""
    try:
        outcome: Outcome = runtime.run([definition], QuietEvents(), once=True)
    finally:
        close_runtime(runtime)
    for error in outcome.errors.values():
        raise error


def close_runtime(runtime: Runtime) -> None:
    """Close a runtime but for the session, which others use."""
    del runtime.spark
    runtime.close()


def problems(registry: Registry, definition: Definition) -> list[HeadraceError]:
    """Return what validation finds wrong with a definition."""
    return list(check_definition(definition, registry).errors)


def _assembler(bench: Bench, store: SqlStore) -> Assembler:
    return Assembler(
        store=store,
        topics=Topics(Location.of(bench.home / "topics")),
        scratch=bench.home / "scratch",
        state=bench.home / "state",
        clock=now,
        appended=lambda _: None,
    )


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def ignore_request() -> None:
    """Take a request for new task configurations: the kit plans at each start."""


def raise_error(error: Exception) -> None:
    """Fail at once with what a connector reports."""
    raise error
