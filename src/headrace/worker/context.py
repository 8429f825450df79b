"""The contexts that plugins get, backed by the store, and the readers of each topic."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model import Reading
from headrace.plugins import Access
from headrace.sdk import Position, Schema

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.model import Lease, TaskId
    from headrace.store import Store


_FRESH_SECONDS = 5.0
"""How long one read of the store is reused, as topics are maintained one after another."""
_CAPTURE = ".capture"
"""The suffix of the topic between a capture and its connector's chain."""


@dataclass
class TopicReadings:
    """Finds the readers of each topic from positions and unfinished batches.

    Every task that was ever started has a position, even while paused, stopped or failed. Used
    by one thread at a time.
    """

    store: Store
    monotonic: Callable[[], float] = time.monotonic
    _found: dict[str, list[Reading]] = field(default_factory=dict, init=False)
    _connectors: set[str] = field(default_factory=set, init=False)
    _looked: float | None = field(default=None, init=False)

    def __call__(self, topic: str) -> Sequence[Reading]:
        """Return the readers of a topic. Raises StoreUnavailableError."""
        now = self.monotonic()
        if self._looked is None or now - self._looked >= _FRESH_SECONDS:
            self._look()
            self._looked = now
        found = self._found.get(topic, ())
        owner = topic.removesuffix(_CAPTURE)
        if not found and owner != topic and owner in self._connectors:
            # The source has already released data that only this topic has, and the chain has
            # not begun to read it.
            return [Reading(reader=owner, version=-1)]
        return found

    def _look(self) -> None:
        self._looked = None
        self._connectors = {task.connector for task in self.store.statuses()}
        self._found = {}
        for connector in sorted(self._connectors):
            for task, position in self.store.positions(connector).items():
                batch = self.store.unfinished_batch(task)
                for topic, version in _versions(position if batch is None else batch.start):
                    reading = Reading(
                        reader=str(task), version=version, running=batch is not None
                    )
                    self._found.setdefault(topic, []).append(reading)


def _versions(position: Position) -> Iterator[tuple[str, int]]:
    """Yield the topics of a position, each with the newest version that is read completely."""
    for partition, offset in position.items():
        if partition.keys() == {"topic"} and "version" in offset:
            yield partition["topic"], int(offset["version"]) - ("index" in offset)


@dataclass(frozen=True)
class StoredSchemas:
    """A SchemaMemory in the store."""

    store: Store
    connector: str
    identity: str | None = None

    def get(self, stream: str) -> Schema | None:
        return self.store.schema(self.connector, stream)

    def put(self, stream: str, schema: Schema) -> None:
        self.store.put_schema(self.connector, stream, schema, identity=self.identity)


@dataclass(frozen=True)
class StoredLedger:
    """A Ledger in the store."""

    store: Store
    lease: Lease

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        return self.store.ledger_append(self.lease.task, self.lease.epoch, items, after)

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        return self.store.ledger_slice(self.lease.task, start, end)

    def __len__(self) -> int:
        return self.store.ledger_length(self.lease.task)


def application_of(store: Store, task: TaskId, identity: str | None) -> str:
    """Return the application id of a task in marks, unique across stores and re-creations.

    ``identity`` is the connector's uid; None to read it from the store.
    """
    uid = identity or store.register(task.connector)
    return f"{task.connector}-{uid}-{task.number}"


@dataclass(frozen=True)
class StoredTaskContext:
    """A TaskContext for a task that runs under a lease."""

    store: Store
    lease: Lease
    folder: Path
    stop_asked: threading.Event
    identity: str | None = None
    access: Access = field(default_factory=Access)
    memory: str | None = None
    """The name under which schemas are stored; None for the connector's name."""

    @property
    def connector(self) -> str:
        return self.lease.task.connector

    @property
    def task(self) -> int:
        return self.lease.task.number

    @property
    def application(self) -> str:
        return application_of(self.store, self.lease.task, self.identity)

    @property
    def schemas(self) -> StoredSchemas:
        if self.memory is not None:
            return StoredSchemas(self.store, self.memory)
        return StoredSchemas(self.store, self.connector, self.identity)

    @property
    def ledger(self) -> StoredLedger:
        return StoredLedger(self.store, self.lease)

    @property
    def scratch(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder

    def position(self) -> Position:
        return self.store.position(self.lease.task)

    def check_file(self, path: str) -> None:
        self.access.check_file(path)

    def stopping(self) -> bool:
        return self.stop_asked.is_set()


@dataclass(frozen=True)
class StoredConnectorContext:
    """A ConnectorContext over the store."""

    store: Store
    name: str
    reconfigure: Callable[[], None]
    fail: Callable[[Exception], None]
    identity: str | None = None

    @property
    def schemas(self) -> StoredSchemas:
        return StoredSchemas(self.store, self.name, self.identity)

    def position(self) -> Position:
        merged = Position()
        for _, position in sorted(self.positions().items()):
            merged = merged.merged(position)
        return merged

    def positions(self) -> Mapping[int, Position]:
        stored = self.store.positions(self.name)
        return {task.number: position for task, position in stored.items()}

    def request_task_reconfiguration(self) -> None:
        self.reconfigure()

    def raise_error(self, error: Exception) -> None:
        self.fail(error)
