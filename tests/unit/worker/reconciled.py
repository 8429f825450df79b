"""A worker that is reconciled with what is wanted; its tasks are written down."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.unit.worker.scripts import IDLE, Script, Told, now

from headrace.model import (
    Connector,
    ConnectorKind,
    RestartPolicy,
    Stamp,
    TargetState,
    TaskId,
)
from headrace.sdk import SourceError
from headrace.store import ConnectorStore, Store
from headrace.worker import Planned, Reconciler, Worker

ANN = Stamp(datetime(2026, 1, 1, tzinfo=UTC), "ann")


class Numbered(Script):
    """A task of a connector that may have several."""

    def __init__(self, connector: str, number: int) -> None:
        super().__init__(connector, IDLE)
        self.id = TaskId(connector, number)


@dataclass
class Opened:
    """A connector that is started."""

    bench: "Reconciled"
    connector: Connector

    def __post_init__(self) -> None:
        self.bench.opened.append(self.connector.name)

    def plan(self) -> Planned:
        return self.bench.plan(self.connector)

    def changed(self) -> bool:
        return self.connector.name in self.bench.noticed

    def close(self) -> None:
        self.bench.opened.remove(self.connector.name)


@dataclass
class Reconciled:
    """A worker, what is wanted of it, and all tasks that were ever planned.

    A connector has as many tasks as its ``tasks.max`` says; they do nothing, but for what a
    test gives them. One that is ``broken`` cannot be planned.
    """

    state_store: Store = field(default_factory=Store)
    wanted_store: ConnectorStore | None = None
    made: list[Numbered] = field(default_factory=list)
    broken: dict[str, Exception] = field(default_factory=dict)
    plans: int = 0
    failing: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    parts: dict[str, dict[int, str]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    noticed: set[str] = field(default_factory=set)
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    def __post_init__(self) -> None:
        self.wanted = self.wanted_store or ConnectorStore(self.state_store.database)
        self.told = Told()
        self.worker = Worker(
            store=self.state_store, owner="w1:8083", events=self.told, clock=now, serving=True
        )
        self.reconciler = Reconciler(
            store=self.wanted,
            worker=self.worker,
            open_plan=lambda each: Opened(self, each),
            clock=now,
            policy=lambda _: self.policy,
            interval=timedelta(milliseconds=5),
        )

    def step(self) -> None:
        """Let the reconciler look, and again until it waits for nobody."""
        self.reconciler.step()
        while len(self.reconciler._settlements):
            time.sleep(0.001)
            self.reconciler.step()

    def want(self, name: str = "c", tasks: int = 1) -> None:
        """Create a source that is to run."""
        config = {"tasks.max": str(tasks)}
        self.wanted.create(name, ConnectorKind.SOURCE, config, TargetState.RUNNING, ANN)

    def plan(self, connector: Connector) -> Planned:
        self.plans += 1
        if connector.name in self.broken:
            raise self.broken[connector.name]
        count = self.counts.get(connector.name) or int(connector.config.get("tasks.max", "1"))
        part = self.parts.get(connector.name, {})
        configs = {
            n: {"task.class": "Script", "part": part.get(n, str(n))} for n in range(count)
        }
        topics = frozenset({connector.config.get("topic", "t")})
        return Planned(configs, lambda number: self.make(connector.name, number), topics)

    def make(self, connector: str, number: int) -> Numbered:
        made = Numbered(connector, number)
        if self.failing:
            made.steps = [SourceError("broken")]
        self.made.append(made)
        return made

    def newest(self, connector: str, number: int) -> Numbered:
        """Return the task of that number as it was planned last."""
        return next(t for t in reversed(self.made) if t.id == TaskId(connector, number))
