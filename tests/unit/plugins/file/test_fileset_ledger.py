"""Mode set over a real store: files that change, vanish or come under another path."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.model import Batch, ConnectorKind, Counts, Stamp, TargetState, TaskId
from headrace.sdk import Position, ReadLimit, StateError
from headrace.sdk.errors import RangeChangedError, SourceError
from headrace.store import ConnectorStore, Store, StoreUnavailableError
from headrace.worker import BatchLoop, StoredTaskContext
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.settings import SourceSettings
from headrace_plugins.connectors.file.source import FileSource

TASK = TaskId("c", 0)
ANN = Stamp(datetime.now(UTC), "ann")


class SinkDownError(Exception):
    """The target cannot be reached."""


@dataclass
class Source:
    """A task of mode set, of which only Spark is left out."""

    folder: Path
    store: Store = field(default_factory=Store)
    delivered: list[str] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    """More of the connector's keys."""
    slept: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wanted = ConnectorStore(self.store.database)
        self.wanted.create("c", ConnectorKind.SOURCE, {}, TargetState.STOPPED, ANN)

    def put(self, name: str, text: str = "x\n") -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def open(
        self,
        path: str = "a",
        *,
        before: Callable[[], object] = lambda: None,
        settle_ms: int = 0,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> BatchLoop:
        """Start the task as a new process does; ``before`` is called before a range is read."""
        lease = self.store.lease(TASK, "w", now(), timedelta(minutes=1))
        task = self.task(path, settle_ms, clock_ns)
        context: Any = SimpleNamespace(stop_asked=None)
        context = StoredTaskContext(self.store, lease, self.folder, context, None)
        task.start(context)

        def run(batch: Batch) -> Counts:
            before()
            # What read does first.
            files = task._range(batch.start, batch.end)
            self.delivered += [str(Path(f.path).relative_to(self.folder)) for f in files]
            return Counts(read=len(files), written=len(files))

        return BatchLoop(
            store=self.store,
            lease=lease,
            reader=task,
            flow=SimpleNamespace(run=run, routing=""),
            limit=ReadLimit(rows=1000),
            clock=now,
        )

    def task(self, path: str, settle_ms: int, clock_ns: Callable[[], int]) -> FileSet:
        props = {"path": str(self.folder / path), "format": "text"}
        props |= {"settle.ms": str(settle_ms), **self.more}
        settings = SourceSettings.from_config(FileSource.config_def().parse(props))
        return FileSet(settings, clock_ns=clock_ns, sleep=self.slept.append)

    def give_up(self, *, skip: bool = False) -> None:
        [lease] = self.store.leases()
        self.store.release(lease)
        batch = self.store.unfinished_batch(TASK)
        assert batch is not None
        self.wanted.give_up(TASK, batch.id, ANN, skip=skip)

    def reset(self) -> None:
        for lease in self.store.leases():
            self.store.release(lease)
        self.wanted.set_positions("c", {TASK: Position()}, ANN, "reset")


def now() -> datetime:
    return datetime.now(UTC)


def down() -> None:
    raise SinkDownError


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    return Source(tmp_path)


def test_a_file_that_is_written_between_discovery_and_planning_is_read_whole(source: Source):
    source.put("a/1", "half\n")
    loop = source.open()
    loop.reader.latest(Position(), ReadLimit())
    source.put("a/1", "half\nand half\n")
    loop.step()
    assert source.delivered == ["a/1"]
    assert loop.step() is None


def test_a_file_that_was_repaired_is_read_by_the_next_run_that_ends(source: Source):
    path = source.put("a/1", "damaged\n")

    def fail() -> None:
        path.write_text("repaired\n")
        down()

    with pytest.raises(SinkDownError):
        source.open(before=fail).step()
    source.give_up()
    loop = source.open()
    end = loop.reader.latest(loop.position(), ReadLimit())  # what such a run begins with
    loop.limit = ReadLimit(rows=1000, until=end)
    loop.step()
    assert source.delivered == ["a/1"]


def test_a_file_that_changes_before_a_first_attempt_reads_it_is_planned_anew(source: Source):
    path = source.put("a/1")
    grown = iter([True])
    loop = source.open(before=lambda: next(grown, False) and path.write_text("longer\n"))
    done = loop.step()
    assert source.delivered == ["a/1"]
    assert done is not None
    assert done.id == 2
    assert source.open().step() is None


def test_a_file_that_is_gone_before_it_is_read_is_told_of_and_left_out(source: Source):
    source.put("a/1")
    gone = source.put("a/2")
    loop = source.open(before=lambda: gone.unlink(missing_ok=True))
    with capture_logs() as told:
        loop.step()
    assert source.delivered == ["a/1"]
    assert [(each["event"], each["files"]) for each in told if "files" in each] == [
        ("files vanished before they were read; they are read if they come back", 1)
    ]


@pytest.mark.parametrize("change", ["removed", "rewritten"])
def test_a_file_that_changes_while_its_batch_is_in_doubt_waits_for_somebody(
    source: Source, change: str
):
    path = source.put("a/1")
    source.put("a/2")
    with pytest.raises(SinkDownError):
        source.open(before=down).step()
    path.unlink() if change == "removed" else path.write_text("repaired\n")
    for _ in range(2):
        with pytest.raises(RangeChangedError) as failed:
            source.open().step()
        assert "headrace connector offsets give-up c --task 0 --batch 1" in failed.value.fix
    source.give_up()
    source.open().step()
    assert sorted(source.delivered) == (["a/2"] if change == "removed" else ["a/1", "a/2"])


def test_a_batch_may_be_skipped(source: Source):
    path = source.put("a/1")
    with pytest.raises(SinkDownError):
        source.open(before=down).step()
    path.unlink()
    source.give_up(skip=True)
    source.put("a/2")
    source.open().step()
    assert source.delivered == ["a/2"]


def test_a_reset_reads_what_is_left_and_counts_what_is_gone(source: Source):
    for name in "123":
        source.put(f"a/{name}")
    source.open().step()
    (source.folder / "a/1").unlink()
    (source.folder / "a/2").write_text("another\n")
    source.reset()
    source.delivered.clear()
    with capture_logs() as told:
        source.open().step()
    assert sorted(source.delivered) == ["a/2", "a/3"]
    assert [each["files"] for each in told if each["log_level"] == "warning"] == [1]
    source.delivered.clear()
    assert source.open().step() is None


def test_another_path_begins_with_its_own_files_and_a_former_one_goes_on(source: Source):
    source.put("a/1")
    source.put("b/9")
    source.open("a").step()
    source.open("b").step()
    assert source.delivered == ["a/1", "b/9"]
    source.put("a/2")
    source.open("a").step()
    assert source.delivered == ["a/1", "b/9", "a/2"]
    position = source.store.position(TASK)
    assert {Path(p["path"]).name for p, _ in position.items()} == {"a", "b"}


def test_the_folder_of_a_former_path_may_be_gone(source: Source):
    path = source.put("a/1")
    source.put("b/9")
    source.open("a").step()
    path.unlink()
    path.parent.rmdir()
    source.open("b").step()
    assert source.delivered == ["a/1", "b/9"]


def test_a_wider_pattern_does_not_read_again_what_was_read(source: Source):
    source.put("a/1.txt")
    source.open("a/*.txt").step()
    source.put("a/2.log")
    source.open("a").step()
    assert source.delivered == ["a/1.txt", "a/2.log"]


def test_a_batch_in_doubt_is_not_read_under_another_path(source: Source):
    for name in "123":
        source.put(f"a/{name}")
    with pytest.raises(SinkDownError):
        source.open("a", before=down).step()
    with pytest.raises(StateError, match="is configured to read"):
        source.open("b").step()
    source.open("a").step()
    assert source.delivered == ["a/1", "a/2", "a/3"]


def test_files_are_found_once_when_the_answer_of_the_store_is_lost(source: Source):
    for name in "12":
        source.put(f"a/{name}")
    real, lost = source.store.ledger_append, [True]

    def append(task: TaskId, epoch: int, items: Sequence[Mapping[str, Any]], after: int) -> int:
        length = real(task, epoch, items, after)
        if lost:
            lost.clear()
            raise StoreUnavailableError
        return length

    source.store.ledger_append = append  # type: ignore[assignment,method-assign]
    loop = source.open()
    with pytest.raises(StoreUnavailableError):
        loop.step()
    source.put("a/3")  # so that what is found now is not what was found then
    loop.step()
    assert source.store.ledger_length(TASK) == 3
    assert source.open().step() is None
    assert sorted(source.delivered) == ["a/1", "a/2", "a/3"]


def test_a_file_is_left_until_it_has_settled(source: Source):
    path = source.put("a/1")
    assert source.open(settle_ms=60000).step() is None
    os.utime(path, (0, 0))
    source.open(settle_ms=60000).step()
    assert source.delivered == ["a/1"]


def test_who_asks_for_all_that_is_there_waits_until_it_has_settled(source: Source):
    source.put("a/1")
    source.open(settle_ms=5000).reader.latest(Position(), ReadLimit())
    [seconds] = source.slept
    assert 0 < seconds <= 5.1
    source.open(settle_ms=60000).reader.latest(Position(), ReadLimit())
    assert len(source.slept) == 1


def test_a_time_of_change_that_is_to_come_does_not_keep_a_file_from_being_read(source: Source):
    path = source.put("a/1")
    os.utime(path, (9_000_000_000, 9_000_000_000))
    time.sleep(0.02)  # that is now the time of the last change: longer than settle.ms
    source.open(settle_ms=1).step()
    assert source.delivered == ["a/1"]


def test_an_empty_file_is_found_once_it_is_written(source: Source):
    source.put("a/1", "")
    assert source.open().step() is None
    source.put("a/1")
    source.open().step()
    assert source.delivered == ["a/1"]


def changes(told: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[str]]]:
    found = [each for each in told if "mode: grow" in each["event"]]
    assert all(each["log_level"] == "warning" for each in found)
    return [(each["files"], [Path(path).name for path in each["first"]]) for each in found]


def test_a_file_that_changes_after_it_was_read_is_told_once_and_not_read_again(source: Source):
    path = source.put("a/1")
    source.put("a/2")
    minutes = [0]
    reader = source.open(clock_ns=lambda: time.time_ns() + minutes[0] * 60 * 10**9)
    with capture_logs() as told:
        reader.step()
        minutes[0] += 1
        assert reader.step() is None
    assert changes(told) == []
    for text in ("x\nmore\n", "x\nmore\nand more\n"):
        path.write_text(text)
        minutes[0] += 1
        with capture_logs() as told:
            for _ in range(3):
                assert reader.step() is None
                minutes[0] += 1
        assert changes(told) == [(1, ["1"])]
    assert sorted(source.delivered) == ["a/1", "a/2"]


def test_a_new_run_tells_how_many_files_have_changed_and_names_some(source: Source):
    for name in "12345":
        source.put(f"a/{name}")
    source.open().step()
    for name in "1234":
        source.put(f"a/{name}", "another\n")
    (source.folder / "a/5").unlink()
    with capture_logs() as told:
        assert source.open().step() is None
    assert changes(told) == [(4, ["1", "2", "3"])]


def test_a_file_that_grows_after_it_was_read_ends_real_time(source: Source):
    """By windows each run would read the file again, and so the line that was added."""
    source.more = {"window.from": "2000-01-01T00:00:00Z", "window.follow": "true"}
    path, clock = source.put("a/1"), SimpleNamespace(ahead_ns=0)
    loop = source.open(clock_ns=lambda: time.time_ns() + clock.ahead_ns)
    loop.step()
    with path.open("a") as file:
        file.write("y\n")
    assert loop.step() is None, "files that were read are looked at once a minute"
    clock.ahead_ns = 61 * 10**9
    for _ in range(2):
        with pytest.raises(SourceError, match="a/1 has changed since it was read") as raised:
            loop.step()
        assert "mode: grow" in raised.value.fix
    with pytest.raises(SourceError):
        source.open().step()
    path.unlink()
    source.put("a/2", "y\n")
    source.open().step()
    assert source.delivered == ["a/1", "a/2"]
