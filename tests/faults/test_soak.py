"""An hour of random faults loses nothing, doubles nothing, and leaves nothing stuck."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.fault_kinds import kinds
from tests.faults.soak import Soak, opened_volumes
from tests.postgresql_server import STORE, PostgresqlServer

MINUTES = float(os.environ.get("HEADRACE_SOAK_MINUTES", "60"))
SEED = int(os.environ.get("HEADRACE_SOAK_SEED", "1"))
_CHECKPOINT_SECONDS = 300


def soaked(soak: Soak, seconds: float) -> str:
    """Make faults for some time; return the report."""
    soak.open()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            soak.run(kinds(soak), min(end, time.monotonic() + _CHECKPOINT_SECONDS))
            soak.checkpoint(last=time.monotonic() >= end)
        return soak.report()
    finally:
        soak.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def check(soak: Soak, report: str) -> None:
    print(f"\n{report}")  # noqa: T201 - the report is what the soak is for
    assert not soak.failures, report
    assert not soak.stuck, report
    assert not soak.traces, report  # a fault is told in words


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_a_server_on_sqlite_survives_random_faults(tmp_path: Path, opened: ExitStack) -> None:
    soak = Soak(tmp_path, SEED, opened_volumes(tmp_path, opened))
    check(soak, soaked(soak, MINUTES * 30))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_a_server_on_postgresql_survives_random_faults(
    postgresql: PostgresqlServer, tmp_path: Path, opened: ExitStack
) -> None:
    url = opened.enter_context(postgresql.database(STORE))
    volumes = opened_volumes(tmp_path, opened)
    soak = Soak(tmp_path, SEED, volumes, database=postgresql, database_url=url)
    check(soak, soaked(soak, MINUTES * 30))
