"""A process that makes and takes the runs of a store's jobs, by a clock that runs fast.

python job_server.py STORE NAME START SPEED LEASE FILE: the clock showed START, in seconds since
1970, when the process of this machine whose name is NAME began to run, SPEED times as fast as
it is. Its leases last LEASE seconds. Each window that it has run is a line of FILE.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

from headrace.control import read_job
from headrace.model import Counts, Run, RunPolicy
from headrace.scheduler import Scheduler
from headrace.store import JobStore, Place, Store
from headrace.worker import RunWorker

BEGAN = time.time()
WORK = 0.15
"""Seconds that a run takes: more than one server has room for."""


@dataclass
class Noting:
    """An execution that only notes its window."""

    going: Run
    file: TextIO

    def run(self) -> None:
        time.sleep(WORK)
        self.file.write(f"{self.going.boundaries.lower} {self.going.epoch}\n")
        self.file.flush()

    def stop(self) -> None: ...

    @property
    def version(self) -> int:
        return 1

    def counts(self) -> Counts:
        return Counts()

    def trouble(self) -> None: ...

    def wake(self) -> None: ...

    def is_wanted(self) -> bool:
        return True


def serve(
    place: Place, name: str, clock: Callable[[], datetime], lease: timedelta, file: TextIO
) -> None:
    """Make and take runs for ever."""
    store, leases = JobStore(place), Store(place)
    policies: dict[str, RunPolicy] = {}

    def policy(job: str) -> RunPolicy:
        if job not in policies:
            policies[job] = read_job(store.job(job).document).policy
        return policies[job]

    worker = RunWorker(
        store=store,
        owner=name,
        is_dead=lambda _: False,
        clock=clock,
        lease_clock=leases.now,
        policy=policy,
        open=lambda run: Noting(run, file),
        slots=2,
        lease=lease,
        interval=timedelta(milliseconds=20),
    )
    interval = timedelta(milliseconds=20)
    scheduler = Scheduler(store=store, clock=clock, made=worker.wake, interval=interval)
    threading.Thread(target=scheduler.run, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    where, owner, start, speed, lease, to = sys.argv[1:]

    def fast() -> datetime:
        seconds = float(start) + (time.time() - BEGAN) * float(speed)
        return datetime.fromtimestamp(seconds, UTC)

    with Path(to).open("a") as noted:
        place = where if "://" in where else Path(where)
        serve(place, owner, fast, timedelta(seconds=float(lease)), noted)
