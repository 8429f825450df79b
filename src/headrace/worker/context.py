"""The contexts that the runtime passes to plugins, backed by the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.plugins import Access
from headrace.sdk import Position, Schema

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.model import Lease, TaskId
    from headrace.store import Store


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
