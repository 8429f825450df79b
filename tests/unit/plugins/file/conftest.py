"""A task's context in memory, and the file source started in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.sdk import CaptureSource, Position, Schema
from headrace.sdk.config import Config, source_connector_config
from headrace_plugins.connectors.file import FileSource


@dataclass
class Schemas:
    stored: dict[str, Schema] = field(default_factory=dict)

    def get(self, stream: str) -> Schema | None:
        return self.stored.get(stream)

    def put(self, stream: str, schema: Schema) -> None:
        self.stored[stream] = schema


@dataclass
class ListLedger:
    items: list[dict[str, str | int]] = field(default_factory=list)

    def append(self, items: Sequence[Mapping[str, str | int]]) -> int:
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
    schemas: Schemas = field(default_factory=Schemas)
    ledger: ListLedger = field(default_factory=ListLedger)
    at: Position = field(default_factory=Position)

    def position(self) -> Position:
        return self.at

    def stopping(self) -> bool:
        return False


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(scratch=tmp_path)


@pytest.fixture
def config() -> Callable[[Mapping[str, str]], Config]:
    """Parse a source's configuration as the runtime does."""
    definition = FileSource.config_def().merged(source_connector_config())
    return lambda props: definition.parse({"name": "c", "connector.class": "file", **props})


@pytest.fixture
def follow(
    context: Context, config: Callable[[Mapping[str, str]], Config]
) -> Iterator[Callable[..., CaptureSource]]:
    """Start a capture with these keys; a dot in a key is written as an underscore."""
    started: list[CaptureSource] = []

    def start(path: Path | str, **keys: str) -> CaptureSource:
        props = {k.replace("_", "."): v for k, v in keys.items()}
        props = {"path": str(path), "mode": "grow", **props}
        task = FileSource().task(config(props))
        assert isinstance(task, CaptureSource)
        task.start(context)
        started.append(task)
        return task

    yield start
    for task in started:
        task.stop()
