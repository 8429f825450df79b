"""A task's context in memory, and the file source started in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.task_doubles import Context

from headrace.control.connector_settings import source_def
from headrace.sdk import CaptureSource
from headrace.sdk.config import Config
from headrace_plugins.connectors.file.source import FileSource


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(scratch=tmp_path)


@pytest.fixture
def config() -> Callable[[Mapping[str, str]], Config]:
    """Parse a source's configuration as the runtime does."""
    definition = FileSource.config_def().merged(source_def())
    return lambda props: definition.parse({"name": "c", "connector.class": "file", **props})


@pytest.fixture
def follow(
    context: Context, config: Callable[[Mapping[str, str]], Config]
) -> Iterator[Callable[..., CaptureSource]]:
    """Start a capture with these keys; a dot in a key is written as an underscore."""
    started: list[CaptureSource] = []

    def start(path: Path | str, **keys: str) -> CaptureSource:
        props = {k.replace("_", "."): v for k, v in keys.items()}
        # A test does not wait; what a rotation waits for has tests of its own.
        props = {"path": str(path), "mode": "grow", "rotate.wait.ms": "0", **props}
        task = FileSource.task(config(props))
        assert isinstance(task, CaptureSource)
        task.start(context)
        started.append(task)
        return task

    yield start
    for task in started:
        task.stop()
