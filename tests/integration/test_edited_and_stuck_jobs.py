"""Runs whose job was edited, or whose batch cannot be read any more, between two attempts."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typing_extensions import override

from headrace.cli.progress import Scoreboard
from headrace.model import Batch, EventKind, Run, RunState
from headrace.runtime.app import Runtime
from headrace.sdk import ConfigError, StateError
from headrace.store import ConnectorStore

pytestmark = pytest.mark.spark


class StopsAfterABatch(Scoreboard):
    """Stops what runs, in good order, after its first batch."""

    stop: Callable[[], None] = staticmethod(lambda: None)

    @override
    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        super().batch_finished(batch, took)
        self.stop()


@dataclass
class Bench:
    """A job that reads files one by one, and appends."""

    runtime: Runtime
    folder: Path
    files: int = field(default=0)

    def file(self, text: str) -> Path:
        """Add a file."""
        self.files += 1
        (self.folder / "in").mkdir(exist_ok=True)
        path = self.folder / "in" / f"{self.files}.csv"
        path.write_text(f"id,at\n{text}\n")
        return path

    def run(
        self, source: str = "in", sink: str = "out", *, board: Scoreboard | None = None
    ) -> Run:
        """Return the job's run after an attempt."""
        document: dict[str, Any] = {
            "name": "d",
            "source": {
                "connector": "file",
                "path": str(self.folder / source),
                "format": "csv",
                "schema": "id LONG, at TIMESTAMP",
                "window.column": "at",
                "settle.ms": "0",
                "max.files": 1,
            },
            "sinks": [{"connector": "delta", "path": str(self.folder / sink)}],
            "retries": 0,
            "schedule": {
                "once": True,
                "start": "2026-01-01T00:00:00",
                "end": "2026-01-02T00:00:00",
            },
        }
        with self.runtime.local_runs("d", board or Scoreboard(lambda: 0.0)) as local:
            if isinstance(board, StopsAfterABatch):
                board.stop = local.runs.stop
            local.run(document, "ann", None, None)
        [run] = self.runtime.jobs.runs("d")
        return run

    def ids(self, sink: str = "out") -> list[int]:
        found = DeltaTable(str(self.folder / sink)).to_pyarrow_table()
        return sorted(found["id"].to_pylist())


@pytest.fixture
def bench(runtime: Runtime, tmp_path: Path) -> Bench:
    return Bench(runtime, tmp_path)


def row(number: int) -> str:
    return f"{number},2026-01-01T0{number}:00:00Z"


def test_a_run_goes_on_only_between_the_systems_with_which_it_has_begun(bench: Bench) -> None:
    """After a batch its files are read elsewhere: that batch's would come once more."""
    for number in (1, 2):
        bench.file(row(number))
    stopped = bench.run(board=StopsAfterABatch(lambda: 0.0))
    assert (stopped.state, bench.ids()) == (RunState.QUEUED, [1])
    shutil.copytree(bench.folder / "in", bench.folder / "moved")
    for source, sink, what in (
        ("moved", "out", "another source"),
        ("in", "two", "other sinks"),
    ):
        failed = bench.run(source, sink)
        assert failed.state is RunState.FAILED
        assert what in (failed.error or "")
        bench.runtime.jobs.retry("d", failed.id, "ann")
    assert not (bench.folder / "two").exists()
    assert (bench.run().state, bench.ids()) == (RunState.SUCCEEDED, [1, 2])


def test_a_batch_of_a_run_that_cannot_be_read_any_more_is_given_up(bench: Bench) -> None:
    bench.file(row(1))
    bench.run(board=StopsAfterABatch(lambda: 0.0))
    vanishing = bench.file(row(2))
    # The sink writes its files, and cannot commit them.
    log = bench.folder / "out" / "_delta_log"
    log.rename(bench.folder / "log")
    log.write_text("")
    failed = bench.run()
    log.unlink()
    (bench.folder / "log").rename(log)
    assert (failed.state, bench.ids()) == (RunState.FAILED, [1])
    vanishing.unlink()
    bench.file(row(3))
    bench.runtime.jobs.retry("d", failed.id, "ann")
    way_out = bench.runtime.giving_up_of_runs()
    with pytest.raises(StateError, match="Run 1 of job d is queued"):
        way_out.give_up("d", failed.id, "ann")
    stuck = bench.run()
    assert "headrace job give-up d 1." in (stuck.error or "")
    assert "headrace connector" not in (stuck.error or "")

    shown = way_out.give_up("d", stuck.id, "ann", skip=True, dry_run=True)
    assert (shown.batch.id, shown.done) == (2, False)
    given = way_out.give_up("d", stuck.id, "ann", skip=True)
    assert given.done
    assert "are skipped" in given.meaning
    with pytest.raises(ConfigError, match="no unfinished batch"):
        way_out.give_up("d", stuck.id, "ann")
    events = ConnectorStore(bench.runtime.state.database).events()
    [told] = [each for each in events if each.kind == EventKind.RUN_GIVE_UP]
    assert (told.connector, told.by) == ("d", "ann")
    assert dict(told.detail) == {"run": 1, "task": 0, "batch": 2, "skip": True}

    bench.runtime.jobs.retry("d", stuck.id, "ann")
    assert (bench.run().state, bench.ids()) == (RunState.SUCCEEDED, [1, 3])
