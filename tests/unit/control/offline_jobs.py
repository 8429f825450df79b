"""Jobs for tests of the doors: their documents, and a worker that moves nothing."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.control import Jobs
from headrace.model import Counts, Run, RunState
from headrace.sdk import BoundaryKind
from headrace_plugins.connectors.console.connector import ConsoleSink
from headrace_plugins.connectors.file.source import FileSource

COUNTS = Counts(read=3, written=2, filtered=1, filters={"f": 1})


def document(name: str = "flights", **more: Any) -> dict[str, Any]:
    """Return the document of a job with hourly windows, six of which lie in 2024."""
    schedule = {
        "every": "1 hour",
        "start": "2024-03-30T00:00:00",
        "end": "2024-03-30T06:00:00",
        "catchup": "none",
    }
    copy = {"source": {"connector": "file", "path": ".", "format": "text"}}
    sinks = {"sinks": [{"connector": "console"}]}
    return {"name": name, **copy, **sinks, "schedule": schedule, **more}


def bound_files(patch: pytest.MonkeyPatch) -> None:
    """Let files be read between times."""

    def fill(_cls: type, config: Any, _bounds: object) -> Mapping[str, str]:
        return dict(config.originals)

    patch.setattr(
        FileSource, "boundary_kinds", frozenset({BoundaryKind.TIME, BoundaryKind.VALUE})
    )
    patch.setattr(FileSource, "fill_in_boundaries", classmethod(fill))
    patch.setattr(FileSource, "follow_from", classmethod(fill))


def appends(patch: pytest.MonkeyPatch, *, does: bool = True) -> None:
    """Let the sink hold rows twice that are written twice, or not."""
    patch.setattr(ConsoleSink, "repeatable", classmethod(lambda _cls, _config: not does))


def execute(jobs: Jobs, state: RunState = RunState.SUCCEEDED) -> list[Run]:
    """End all runs that are due."""
    now, ended = jobs.clock(), []
    for seen in jobs.store.waiting(now, now, lambda _: False, 1000):
        taken = jobs.store.take(seen, "w1", now, now, 1000, in_order=False)
        if taken is not None:
            error = "It broke." if state is RunState.FAILED else None
            ended.append(jobs.store.finish(taken, state, now, counts=COUNTS, error=error))
    return ended


def forget(jobs: Jobs) -> None:
    """Delete all jobs."""
    for view in jobs.views():
        jobs.delete(view.job.name, "test")
