"""Several processes append to one topic, and die in the middle."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.topics import topic_owner
from tests.unit.topics.made_topics import ids
from tests.unit.topics.topic_owner import ids_of

from headrace.sdk import Mark, Position, ReadLimit
from headrace.sdk.location import Location
from headrace.topics import TopicReader, Topics, Upkeep, UpkeepPolicy

ROOT = Path(__file__).parents[3]
LAST = 30


@contextmanager
def owners(
    folder: Path, *epochs: int, fields: int = 0
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                topic_owner.__name__,
                folder,
                *map(str, (LAST, epoch, fields)),
            ],
            cwd=ROOT,
        )
        for epoch in epochs
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def finish(processes: Sequence[subprocess.Popen[bytes]], upkeep: Upkeep) -> None:
    """Let processes end while upkeep goes on."""
    while any(process.poll() is None for process in processes):
        upkeep.run_once()
    assert [process.returncode for process in processes] == [0] * len(processes)


def aged(topics: Topics) -> Upkeep:
    """Upkeep for which everything is old enough to be compacted at once."""
    policy = UpkeepPolicy(
        checkpoint_versions=7,
        compact_after=timedelta(0),
        compact_files=3,
        log_versions=15,
        every=timedelta(0),
        grace=timedelta(seconds=1),
    )
    return Upkeep(topics, lambda: datetime.now(UTC), policy)


def all_ids(topics: Topics) -> list[int]:
    reader = TopicReader(topics.get("owned"))
    return ids(reader, Position(), reader.latest(Position(), ReadLimit()))


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_batches_are_there_once_when_owners_compete_and_one_is_killed(
    tmp_path: Path, seconds: float
):
    topics = Topics(Location.of(tmp_path))
    with owners(tmp_path, 1, 2) as (killed, other):
        end = time.monotonic() + seconds
        while not topics.get("owned").exists() and other.poll() is None:
            time.sleep(0.01)
            end = time.monotonic() + seconds
        while time.monotonic() < end:
            aged(topics).run_once()
        killed.kill()
        finish([other], aged(topics))
    with owners(tmp_path, 3) as again:
        finish(again, aged(topics))
    assert all_ids(topics) == [n for batch in range(LAST + 1) for n in ids_of(batch)]
    assert topics.get("owned").receipt(Mark("owner", LAST, 3)) is not None


def test_nothing_is_lost_when_owners_add_fields_while_others_append(tmp_path: Path):
    topics = Topics(Location.of(tmp_path))
    with owners(tmp_path, 1, 2, fields=5) as processes:
        finish(processes, aged(topics))
    assert all_ids(topics) == [n for batch in range(LAST + 1) for n in ids_of(batch)]
    value = topics.get("owned").schema().field("value")
    assert value is not None
    names = [field.name for field in value.schema.fields]
    assert names == ["id", *(f"added_{n}" for n in range(5))]
