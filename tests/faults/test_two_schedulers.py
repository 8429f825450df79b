"""Guarantees 3 and 5 of two servers that make and take the runs of one store."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgresql_server import STORE, PostgresqlServer
from tests.waiting import until

from headrace.control import read_job
from headrace.model import Job, JobState, RunState, Stamp
from headrace.store import JobStore, Place

SCRIPT = Path(__file__).with_name("job_server.py")
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    with server.database(STORE) as url:
        yield url


def create(store: JobStore, windows: int) -> None:
    """Make a job that runs once a second."""
    document = {
        "name": "seconds",
        "source": {"connector": "file", "path": "in"},
        "sinks": [{"connector": "console"}],
        "schedule": {
            "every": "1 second",
            "start": START.replace(tzinfo=None).isoformat(),
            "end": (START + timedelta(seconds=windows)).replace(tzinfo=None).isoformat(),
            "overlap": "parallel",
            "parallel": 8,
        },
    }
    schedule = read_job(document).schedule
    assert schedule is not None
    first = next(schedule.windows())
    job = Job(
        name="seconds",
        uid="",
        document=document,
        version=1,
        state=JobState.APPROVED,
        cursor=first.lower,
        due=schedule.due(first),
        changed=START,
        by="",
    )
    store.create(job, None, Stamp(START, "ann"))


class Servers:
    """Two servers of one store, whose clocks are not the same."""

    def __init__(self, place: str, folder: Path, speed: float, lease_seconds: float) -> None:
        self.place, self.folder = place, folder
        self.speed, self.lease_seconds = speed, lease_seconds
        self.began = time.time()
        self.starts = 0

    @contextmanager
    def serving(self, number: int) -> Iterator[subprocess.Popen[bytes]]:
        self.starts += 1
        shown = START.timestamp() + (time.time() - self.began) * self.speed + number * 0.7
        arguments = [self.place, f"w{number}-{self.starts}", str(shown), str(self.speed)]
        arguments.append(str(self.lease_seconds))
        file = self.folder / f"ran-{number}.txt"
        with subprocess.Popen(
            [sys.executable, SCRIPT, *arguments, file], stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def ran(self) -> list[list[str]]:
        files = sorted(self.folder.glob("ran-*.txt"))
        return [file.read_text().splitlines() for file in files]


def opened(place: str) -> JobStore:
    where: Place = place if "://" in place else Path(place)
    return JobStore(where)


@pytest.mark.service
@pytest.mark.parametrize("windows", [120, pytest.param(3600, marks=pytest.mark.long)])
@pytest.mark.timeout(1000)
def test_each_window_of_two_servers_is_run_once(
    place: str, tmp_path: Path, windows: int
) -> None:
    store = opened(place)
    create(store, windows)
    # A server that this machine holds up for a whole lease would lose its window.
    servers = Servers(place, tmp_path, speed=20, lease_seconds=60)
    with servers.serving(0), servers.serving(1):
        until(
            lambda: store.job("seconds").state is JobState.FINISHED,
            lambda: store.counts("seconds"),
            seconds=900,
        )
    assert store.counts("seconds") == {RunState.SUCCEEDED: windows}
    first, second = servers.ran()
    assert first
    assert second
    expected = [(START + timedelta(seconds=n)).isoformat() for n in range(windows)]
    assert sorted(line.split()[0] for line in first + second) == expected
    store.close()


@pytest.mark.service
@pytest.mark.timeout(1000)
def test_windows_are_run_though_one_of_the_servers_is_killed_again_and_again(
    place: str, tmp_path: Path
) -> None:
    windows, chance = 120, random.Random(5)  # noqa: S311 - no secret
    store = opened(place)
    create(store, windows)
    servers = Servers(place, tmp_path, speed=10, lease_seconds=3)
    with ExitStack() as running:
        running.enter_context(servers.serving(0))
        while store.job("seconds").state is not JobState.FINISHED:
            with servers.serving(1):
                time.sleep(chance.uniform(1, 4))
    assert store.counts("seconds") == {RunState.SUCCEEDED: windows}
    # What ran in a process that was killed may be noted twice, and then under another epoch.
    lines = [line for each in servers.ran() for line in each]
    assert max(Counter(lines).values()) == 1
    assert len({line.split()[0] for line in lines}) == windows
    store.close()
