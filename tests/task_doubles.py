"""What a plugin's task is offered, in memory: schemas, a ledger, a context; and its capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.capture import CaptureSpec
from headrace.plugins import Access
from headrace.sdk import Position, Schema, StateError

__all__ = ["Context", "ListLedger", "Schemas", "copying"]


def copying(folder: Path, **told: Any) -> CaptureSpec:
    """Return what a host is told of a capture that copies into the topic `t`."""
    values = {
        "connector": "copy",
        "task": 0,
        "class_path": "m.C",
        "config": {},
        "application": "copy",
        "topics_dir": str(folder),
        "topic": "t",
        "scratch": str(folder / "scratch"),
    }
    return CaptureSpec(**{**values, **told})


@dataclass
class Schemas:
    """A memory of schemas."""

    stored: dict[str, Schema] = field(default_factory=dict)

    def get(self, stream: str) -> Schema | None:
        return self.stored.get(stream)

    def put(self, stream: str, schema: Schema) -> None:
        self.stored[stream] = schema


@dataclass
class ListLedger:
    """A ledger."""

    items: list[dict[str, str | int]] = field(default_factory=list)

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        if after not in {None, len(self.items)}:
            raise StateError
        self.items += [dict(item) for item in items]
        return len(self.items)

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        return self.items[start:end]

    def __len__(self) -> int:
        return len(self.items)


@dataclass
class Context:
    """A context whose stores outlive the task, as the runtime's do."""

    scratch: Path = Path()
    connector: str = "c"
    task: int = 0
    uid: str = "1a2b3c"
    schemas: Schemas = field(default_factory=Schemas)
    ledger: ListLedger = field(default_factory=ListLedger)
    at: Position = field(default_factory=Position)
    access: Access = field(default_factory=Access)

    @property
    def application(self) -> str:
        return f"{self.connector}-{self.uid}-{self.task}"

    def position(self) -> Position:
        return self.at

    def check_file(self, path: str) -> None:
        self.access.check_file(path)

    def stopping(self) -> bool:
        return False
