"""The contexts of a capture in its host; the worker stores their state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.plugins import Access
from headrace.sdk import Position, Schema
from headrace.sdk.sparktypes import schema_from_json, schema_to_json

Ask = Callable[..., Any]
"""Calls the worker: ``ask(what, **facts)``."""


@dataclass(frozen=True)
class RemoteSchemas:
    """A SchemaMemory that the worker stores. Only the host's own captures change it."""

    ask: Ask
    _known: dict[str, Schema | None] = field(default_factory=dict)

    def get(self, stream: str) -> Schema | None:
        if stream not in self._known:
            text = self.ask("schema", stream=stream)
            self._known[stream] = None if text is None else schema_from_json(text)
        return self._known[stream]

    def put(self, stream: str, schema: Schema) -> None:
        self.ask("put_schema", stream=stream, schema=schema_to_json(schema))
        self._known[stream] = schema


@dataclass(frozen=True)
class RemoteLedger:
    """A Ledger that the worker stores."""

    ask: Ask

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        plain = [dict(item) for item in items]
        return int(self.ask("ledger_append", items=plain, after=after))

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        items: list[dict[str, str | int]] = self.ask("ledger_slice", start=start, end=end)
        return items

    def __len__(self) -> int:
        return int(self.ask("ledger_length"))


@dataclass(frozen=True)
class HostTaskContext:
    """A TaskContext in a host."""

    connector: str
    task: int
    application: str
    schemas: RemoteSchemas
    ledger: RemoteLedger
    folder: str
    started_at: Position
    stop_asked: threading.Event
    access: Access

    @property
    def scratch(self) -> Path:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def position(self) -> Position:
        return self.started_at

    def check_file(self, path: str) -> None:
        self.access.check_file(path)

    def stopping(self) -> bool:
        return self.stop_asked.is_set()
