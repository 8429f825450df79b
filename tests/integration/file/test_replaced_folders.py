"""Folders of files whose windows and partitions are written again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.window_runs import DAY, FILES, JANUARY, Target, day, rows

from headrace.sdk import Boundaries, BoundaryKind, ConfigError, Mark, SinkError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace_plugins.connectors.file.replacement import FolderReplacement
from headrace_plugins.connectors.file.sink import FileSink

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Target]:
    """A folder of JSON that is divided by days, whose partitions are replaced."""
    config = {"path": str(tmp_path / "table"), **FILES["partitions"]}
    with ExitStack() as stopping:
        yield Target(spark, FileSink, config, tmp_path, stopping, lambda _: [])


def foreign(folder: Target, number: int, *ids: int) -> None:
    """Write a file of a day that no run has written."""
    place = folder.folder / f"table/day={(JANUARY + number * DAY).date()}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "part-0.json").write_text("".join(f'{{"id":{i}}}\n' for i in ids))
    (place / "_SUCCESS").touch()


def test_a_partition_is_replaced_whoever_has_written_it(folder: Target) -> None:
    foreign(folder, 0, 1, 2)
    foreign(folder, 1, 3)
    folder.moved(day(0), "job@1.1", rows(0, 10), rows(0, 11))
    assert folder.ids() == [3, 10, 11]
    folder.moved(day(0), "other@2.1", rows(0, 12))
    assert folder.ids() == [3, 12]
    assert (folder.folder / "table/day=2026-01-01/_SUCCESS").exists()


def test_a_partition_of_another_window_of_the_job_is_not_replaced(folder: Target) -> None:
    folder.moved(day(0), "job@1.1", rows(0, 1))
    late = folder.run(day(1), "job@2.1")
    with pytest.raises(SinkError, match=r"day=2026-01-01 has rows of another window"):
        late.write([*rows(1, 2), *rows(0, 3)], 1)
    assert folder.ids() == [1]
    folder.moved(day(1), "job@2.1", rows(1, 2))
    assert folder.ids() == [1, 2]


def test_files_of_other_windows_and_jobs_stay_where_windows_are_replaced(
    folder: Target,
) -> None:
    windows = {"replace_partitions": "false", "replace_window": "true"}
    foreign(folder, 0, 1)
    for run, number in (("job@1.1", 2), ("a job@1.1", 3), ("job@1.2", 4)):
        folder.moved(day(0), run, rows(0, number), **windows)
    folder.moved(day(1), "job@2.1", rows(0, 5), **windows)
    assert folder.ids() == [1, 3, 4, 5]


def test_a_job_that_is_made_anew_replaces_the_windows_of_the_one_before(
    folder: Target,
) -> None:
    folder.moved(day(0), "job@7.1", rows(0, 1))
    before, other = (folder.run(day(0), "job@7.1", task) for task in (0, 1))
    folder.moved(day(0), "job@3.1", rows(0, 2))
    assert folder.ids() == [2]
    late = (partial(before.write, rows(0, 3), 2), partial(other.write, rows(0, 3), 1))
    for step in (*late, before.finish, other.finish):
        with pytest.raises(StaleEpochError, match="has taken over the window"):
            step()
    assert folder.ids() == [2]
    folder.moved(day(0), "job@7.2", rows(0, 4))
    assert folder.ids() == [4]


def test_streams_and_sinks_of_a_task_do_not_take_the_names_of_each_other(
    folder: Target,
) -> None:
    for number, stream in enumerate(("a", "b", "a~1")):
        folder.run(day(0), "job@1.1", 0, stream).write(rows(0, number), 1)
    assert folder.ids() == [0, 1, 2]


def test_what_a_run_has_written_before_it_was_to_replace_gives_way(folder: Target) -> None:
    plain = {"replace_partitions": "false"}
    for stream in ("a", "b"):
        folder.run(day(0), "job@1.1", 0, stream, **plain).write(rows(0, 1), 1)
    killed = folder.run(day(0), "job@1.1", 1, **plain)
    frame = killed.frame(rows(0, 1))
    killed.sink.write(frame, killed.batch(frame, 1, 1))
    # The job was edited while the run went on: what it has written is its own.
    folder.run(day(0), "job@1.1", 0, "a").write(rows(0, 2), 2)
    assert folder.ids() == [1, 1, 2]
    folder.moved(day(0), "job@1.2", rows(0, 3))
    assert folder.ids() == [3]
    assert not list((folder.folder / "table/_headrace/staging").glob("*/*"))
    folder.moved(day(0), "other@2.1", rows(1, 4), **plain)
    with pytest.raises(SinkError, match="rows of another window"):
        folder.run(day(1), "other@3.1").write(rows(1, 5), 1)


@pytest.mark.parametrize("ask", ["committed", "commit"])
def test_what_an_earlier_generation_has_left_to_move_is_not_moved_any_more(
    folder: Target, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    dying = folder.run(day(0), "job@1.1")
    with monkeypatch.context() as patched:
        patched.setattr(Location, "move_to", die)
        with pytest.raises(KeyboardInterrupt):
            dying.write(rows(0, 1), 1)
    asleep = folder.run(day(0), "job@1.1")
    frame = asleep.frame(rows(0, 1))
    batch = asleep.batch(frame, 1, 2)
    staged = asleep.sink.write(frame, batch)
    folder.moved(day(0), "job@1.2", rows(0, 2))
    late: dict[str, Callable[[], object]] = {
        "committed": partial(asleep.sink.committed, batch.mark, "t"),
        "commit": partial(staged.commit, batch.mark.receipt({"batch": 1})),
    }
    with pytest.raises(StaleEpochError, match="restarted from the beginning"):
        late[ask]()
    assert folder.ids() == [2]


def test_what_others_do_in_a_partition_later_is_left_alone(folder: Target) -> None:
    foreign(folder, 0, 1)
    foreign(folder, 1, 2)
    going = folder.run(day(0), "job@1.1")
    going.write(rows(0, 3), 1)
    foreign(folder, 0, 4)
    assert going.sink.committed(Mark(going.application, 1, 2), "t")
    assert folder.ids() == [2, 3, 4]
    folder.moved(day(1), "job@2.1", rows(1, 5))
    rerun = folder.run(day(1), "job@2.2")
    rerun.write(rows(2, 6), 1)  # the source gives other days by now
    (folder.folder / "table/day=2026-01-02/_SUCCESS").unlink()
    (folder.folder / "table/day=2026-01-02").rmdir()
    assert rerun.sink.committed(Mark(rerun.application, 1, 2), "t")
    rerun.write(rows(2, 7), 2)
    assert folder.ids() == [3, 4, 6, 7]


def test_targets_below_a_folder_and_jobs_of_like_names_keep_their_files(
    folder: Target,
) -> None:
    windows = {"replace_partitions": "false", "replace_window": "true"}
    inner = {**windows, "path": f"{folder.props['path']}/inner"}
    folder.moved(day(0), "job@1.1", rows(0, 1), **inner)
    folder.moved(day(0), "job@1.1", rows(0, 2), **windows)
    [own] = (folder.folder / "table/day=2026-01-01").glob("part-*")
    window = own.name.split("@")[1]
    for name in (f"job-{window}", f"job@{window}", "job@2", "job@1.1"):
        folder.moved(day(0), f"{name}@1.1", rows(0, 3), **windows)
    folder.moved(day(0), "job@1.2", rows(0, 4), **windows)
    assert folder.ids() == [1, 3, 3, 3, 3, 4]


def test_partitions_of_two_columns_and_odd_values_are_replaced(folder: Target) -> None:
    odd = {"partition_by": "day,note"}
    values = [row for note in ("a/b", "..", "50%", "ä=1") for row in rows(0, 1, note=note)]
    for run in ("job@1.1", "job@1.2"):
        folder.moved(day(0), run, values, [(2, None, None, "a")], **odd)
    assert folder.ids() == [1, 1, 1, 1, 2]


def test_a_partition_that_is_a_link_is_refused(folder: Target) -> None:
    elsewhere = folder.folder / "elsewhere"
    elsewhere.mkdir()
    (folder.folder / "table").mkdir()
    (folder.folder / "table/day=2026-01-01").symlink_to(elsewhere)
    with pytest.raises(SinkError, match="is a symbolic link"):
        folder.run(day(0), "job@1.1").write(rows(0, 1), 1)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"run": "job@1-1a2b3c"}'])
def test_a_record_that_was_spoilt_is_named(folder: Target, text: str) -> None:
    folder.moved(day(0), "job@1.1", rows(0, 1))
    [record] = (folder.folder / "table/_headrace/windows").iterdir()
    record.write_text(text)
    with pytest.raises(SinkError, match=r"windows/job@.*\.json"):
        folder.run(day(0), "job@1.2").write(rows(0, 2), 1)
    assert folder.ids() == [1]


@pytest.mark.parametrize("step", ["require_current", "put", "delete", "move_to", "clear"])
def test_a_replacement_that_dies_anywhere_is_finished_by_the_next_attempt(
    folder: Target, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    foreign(folder, 0, 1)
    folder.moved(day(0), "job@1.1", rows(0, 2))
    folder.moved(day(1), "job@2.1", rows(1, 9))
    dying = folder.run(day(0), "job@1.2")
    frame = dying.frame(rows(0, 4))
    batch = dying.batch(frame, 1, 1)
    staged = dying.sink.write(frame, batch)
    owner = FolderReplacement if step in {"require_current", "clear"} else Location
    real = getattr(owner, step)

    def die(self: Any, *args: Any, **more: Any) -> Any:
        if owner is Location and "windows" in str(self):
            return real(self, *args, **more)  # the record of the window
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, die)
        with pytest.raises(KeyboardInterrupt):
            staged.commit(batch.mark.receipt({"batch": 1}))
    after = folder.run(day(0), "job@1.2")
    if after.sink.committed(Mark(after.application, 1, 2), "t") is None:
        assert folder.ids() == [2, 9]
        after.write(rows(0, 4), 1, epoch=2)
    assert folder.ids() == [4, 9]
    after.write(rows(0, 5), 2, epoch=2)
    after.finish()
    assert folder.ids() == [4, 5, 9]


def test_what_a_folder_cannot_replace_is_refused_before_a_run(folder: Target) -> None:
    def problems(**more: str) -> str:
        props = folder.props | {k.replace("_", "."): v for k, v in more.items()}
        return str(list(FileSink.check(FileSink.config_def().parse(props))))

    assert problems() == "[]"
    assert "replace.partitions requires partition.by" in problems(partition_by="")
    assert "Mode append does not support replace.partitions" in problems(
        mode="append", partition_by=""
    )
    live = Boundaries(BoundaryKind.TIME, "2026-01-01T00:00:00Z")
    with pytest.raises(ConfigError, match="A run without an end"):
        folder.run(live, "job@1.1")
    windows = {"replace_partitions": "false", "replace_window": "true"}
    folder.moved(live, "job@1.1", rows(0, 1), **windows)
    with pytest.raises(ConfigError, match="no window to replace"):
        folder.run(Boundaries(BoundaryKind.TIME), "job@1.1", 0, **windows)
    config = FileSink.config_def().parse(folder.props)
    assert FileSink.repeatable(config)
    assert not FileSink.takes_overlaps(config)
