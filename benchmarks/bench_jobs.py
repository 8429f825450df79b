"""What a tick over many schedules costs, and a run beyond what moves its rows.

python benchmarks/bench_jobs.py [--schedules 10000] [--runs 60]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness import Bench, Quiet, bench, machine, save

from headrace.control import Jobs
from headrace.model import Job, JobState, RunState, Stamp, TaskId
from headrace.scheduler import Scheduler
from headrace.store import JobStore

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 1000
TICKS = 30


def document(name: str, folder: Path, **schedule: object) -> dict[str, Any]:
    """Return the document of a job that copies hours of rows."""
    return {
        "name": name,
        "source": {
            "connector": "file",
            "path": str(folder / "in" / "*.csv"),
            "format": "csv",
            "schema": "id LONG, at TIMESTAMP",
            "window.by": "column",
            "window.column": "at",
        },
        "sinks": [{"connector": "delta", "path": str(folder / "out")}],
        "schedule": {"every": "1 hour", "start": "2026-01-01T00:00:00", **schedule},
    }


def ticks(schedules: int, due: int) -> dict[str, float]:
    """Return milliseconds of a tick with nothing due, and with some windows due."""
    with tempfile.TemporaryDirectory() as made:
        store, now = JobStore(Path(made) / "store.db"), START
        for number in range(schedules):
            name = f"job-{number}"
            job = Job(
                name=name,
                uid="",
                document=document(name, Path(made)),
                version=1,
                state=JobState.CONFIGURED,
                cursor=START,
                due=START + timedelta(hours=1, seconds=number // due),
                changed=START,
                by="bench",
            )
            store.create(job, None, Stamp(START, "bench"))
        scheduler = Scheduler(store=store, clock=lambda: now)
        idle, busy = [], []
        for _ in range(TICKS):
            began = time.perf_counter()
            assert scheduler.tick() == 0
            idle.append(time.perf_counter() - began)
        for number in range(TICKS):
            now = START + timedelta(hours=1, seconds=number)
            began = time.perf_counter()
            assert scheduler.tick() == due
            busy.append(time.perf_counter() - began)
        store.close()
    return {
        "nothing due": statistics.median(idle) * 1000,
        f"{due} due": statistics.median(busy) * 1000,
    }


def write_rows(folder: Path, windows: int) -> None:
    """Write a thousand rows for each hour."""
    (folder / "in").mkdir()
    step = timedelta(hours=1) / ROWS
    rows = (f"{n},{(START + n * step).isoformat()}" for n in range(windows * ROWS))
    (folder / "in" / "rows.csv").write_text("\n".join(["id,at", *rows]) + "\n")


def wait(jobs: Jobs, name: str, runs: int) -> None:
    """Wait until so many runs have succeeded."""
    while jobs.store.counts(name).get(RunState.SUCCEEDED, 0) < runs:
        counts = jobs.store.counts(name)
        assert not counts.get(RunState.FAILED), jobs.store.runs(name)
        time.sleep(0.02)


def overhead(bench: Bench, runs: int) -> Mapping[str, float]:
    """Return seconds of a run, and of its one batch, both warm and at the median."""
    folder = bench.folder
    write_rows(folder, runs)
    end = (START + timedelta(hours=runs)).replace(tzinfo=None).isoformat()
    with bench.runtime.server(Quiet()):
        jobs = bench.runtime.jobs
        jobs.create(document("runs", folder, end=end), "bench")
        jobs.submit("runs", "bench")
        wait(jobs, "runs", runs)
        seconds, moving = [], []
        for run in jobs.store.runs("runs", limit=runs // 2):
            assert run.began is not None
            assert run.ended is not None
            seconds.append((run.ended - run.began).total_seconds())
            batches = bench.runtime.state.batches(TaskId(run.task_name, 0))
            moving.append(
                sum((b.finished - b.begun).total_seconds() for b in batches if b.finished)
            )
    whole, batch = statistics.median(seconds), statistics.median(moving)
    return {"a run": whole, "its batch": batch, "beyond it": whole - batch}


def main(schedules: int, runs: int) -> None:
    """Measure both and keep the figures."""
    print(machine())
    in_ticks = ticks(schedules, due=10)
    for name, millis in in_ticks.items():
        print(f"a tick over {schedules} schedules, {name}: {millis:.1f} ms")
    with bench() as made:
        of_runs = overhead(made, runs)
    for name, seconds in of_runs.items():
        print(f"{name}: {seconds:.2f} s")
    save("jobs", {"schedules": schedules, "tick_ms": in_ticks, "run_seconds": of_runs})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=60)
    found = parser.parse_args()
    main(found.schedules, found.runs)
