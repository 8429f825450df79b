"""An owner of a task in a process of its own, which stops itself at a step of a batch.

Run as a program it takes cases from its standard input, one JSON object a line, and tells of
each, a line each time, that it is about to stop, and what became of it in the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

SECONDS = 60
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """What an owner is to do.

    Args:
        folder: Where the store and the targets are.
        sinks: The task's sinks.
        step: Where it stops; empty for nowhere.
        tolerant: Whether bad rows are dead-lettered.
        available: How many rows the source has.
        source: The kind of the database that has them; empty for none.
    """

    folder: str
    sinks: Sequence[str]
    step: str
    tolerant: bool
    available: int
    source: str = ""


@dataclass
class SuspendedOwner:
    """The process, as the test sees it. One case at a time."""

    process: subprocess.Popen[str]

    def start(self, case: Case) -> None:
        """Let it work until it has stopped; it must get there."""
        assert self.process.stdin is not None
        print(json.dumps(asdict(case)), file=self.process.stdin, flush=True)
        told = self._told()
        assert told.get("stops") == case.step, told
        end = time.monotonic() + SECONDS
        stopped = psutil.Process(self.process.pid)
        while stopped.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < end
            time.sleep(0.001)

    def wake(self) -> list[str]:
        """Let it go on to its end; return the errors it met, by their names."""
        self.process.send_signal(signal.SIGCONT)
        found: list[str] = self._told()["errors"]
        return found

    def _told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended"
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def suspended_owner() -> Iterator[SuspendedOwner]:
    """Run the process for as long as this lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.suspended"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    ) as process:
        try:
            yield SuspendedOwner(process)
        finally:
            process.kill()


def _run(case: Case) -> list[str]:
    from tests.faults.doubles import NumberTask

    from headrace.store import Store

    stopped = False

    def reach(step: str) -> None:
        nonlocal stopped
        if step == case.step and not stopped:
            stopped = True
            print(json.dumps({"stops": step}), flush=True)  # noqa: T201 - it is how it tells
            os.kill(os.getpid(), signal.SIGSTOP)

    folder = Path(case.folder)
    store = Store(folder / "store.db")
    try:
        task = NumberTask(
            store,
            folder,
            case.sinks,
            owner="suspended",
            tolerant=case.tolerant,
            available=case.available,
            source=case.source,
            reach=reach,
        )
        task.to_end()
    except Exception as error:  # noqa: BLE001 - whatever it was is to be told
        return [type(error).__name__, str(error)]
    else:
        return []
    finally:
        store.close()


def main() -> None:
    """Serve cases until there are no more."""
    import logging

    import structlog

    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    for line in sys.stdin:
        errors = _run(Case(**json.loads(line)))
        print(json.dumps({"errors": errors}), flush=True)  # noqa: T201 - it is how it tells


if __name__ == "__main__":
    main()
