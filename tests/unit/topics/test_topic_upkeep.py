"""Upkeep compacts, forgets and cleans, and loses nothing but what it is told to."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs
from tests.unit.topics.made_topics import (
    START,
    Clock,
    append,
    at,
    ids,
    part,
    tending,
)
from typing_extensions import override

from headrace.capture.targets import Addition, Targets
from headrace.model import Counts, TopicRetention
from headrace.sdk import DataLostError, Mark, Position, ReadLimit, Schema
from headrace.sdk.delta import AddedFile
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.mark import receipt_figures
from headrace.topics import (
    Topic,
    TopicReader,
    Topics,
    UpkeepPolicy,
    maintained,
    parse_start,
)
from headrace.topics.compaction import Compaction
from headrace.topics.topic import live_files

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FEW = UpkeepPolicy(compact_files=4)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(Location.of(tmp_path))


@pytest.fixture
def topic(topics: Topics) -> Topic:
    return topics.get("t")


def fill(topic: Topic, clock: Clock, versions: int, *, every: timedelta = MINUTE) -> None:
    """Append versions with one id each, which is the number of the batch."""
    held = topic.log.newest()
    first = 0 if held < 0 else _batches(topic)
    for batch in range(first, first + versions):
        append(topic, [[batch]], Mark("a", batch, 1), clock.now)
        clock.pass_by(every)


def _batches(topic: Topic) -> int:
    commits = (topic.log.commit(v) for v in range(topic.log.newest() + 1) if topic.log.has(v))
    return 1 + max(c.batch for c in commits if c.application == "a" and c.batch is not None)


def all_ids(topic: Topic, start: Position | None = None) -> list[int]:
    reader, start = TopicReader(topic), start or parse_start(topic, "earliest")
    return ids(reader, start, reader.latest(start, ReadLimit()))


def live(topic: Topic) -> Sequence[str]:
    return [Path(uri).name for uri in DeltaTable(topic.location.local).file_uris()]


def test_old_small_files_become_one_and_young_ones_stay(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 20)
    tending(topics, clock, FEW).run_once()
    (segment,) = topic.segments()
    assert (segment.first, segment.last, segment.file.rows) == (1, 11, 11)
    assert len(live(topic)) == 1 + 9
    assert all_ids(topic) == list(range(20))


def test_upkeep_that_is_to_end_leaves_the_other_topics(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 20)
    upkeep = tending(topics, clock, FEW)
    upkeep.run_once(lambda: True)
    assert topic.segments() == []
    upkeep.run_once()
    assert len(topic.segments()) == 1


def test_a_topic_that_cannot_be_read_keeps_no_other_from_its_upkeep(
    topics: Topics, topic: Topic, clock: Clock
):
    broken = topics.get("broken")
    fill(broken, clock, 1)
    newest = broken.location.local / "_delta_log" / f"{broken.log.newest():020}.json"
    newest.unlink()
    newest.mkdir()  # whoever reads it gets an OSError, root included
    fill(topic, clock, 20)
    tending(topics, clock, FEW).run_once()
    assert len(topic.segments()) == 1


def test_the_commit_of_a_segment_says_what_it_holds(topics: Topics, topic: Topic, clock: Clock):
    fill(topic, clock, 20)
    tending(topics, clock, FEW).run_once()
    (segment,) = topic.segments()
    entry = DeltaTable(topic.location.local).history(1)[0]
    assert entry["headrace.segment"] == {
        "from": 1,
        "to": 11,
        "path": segment.file.path,
        "rows": 11,
        "size": segment.file.size_bytes,
    }


def test_other_readers_see_the_same_rows_after_compaction(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 20)
    tending(topics, clock, FEW).run_once()
    table = DeltaTable(topic.location.local)
    assert sorted(v["id"] for v in table.to_pyarrow_table()["value"].to_pylist()) == list(
        range(20)
    )
    dataset = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB looks for it by name
    assert duckdb.execute("SELECT count(*), sum(value.id) FROM dataset").fetchall() == [
        (20, 190)
    ]


def test_each_single_version_can_be_replayed_when_the_originals_are_gone(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 20)
    upkeep = tending(topics, clock, FEW)
    upkeep.run_once()
    clock.pass_by(2 * HOUR)
    upkeep.run_once()
    clock.pass_by(2 * HOUR)
    upkeep.run_once()
    assert not list((topic.location.local / "data" / "made").glob("*.parquet"))
    reader = TopicReader(topic)
    for version in range(1, 21):
        assert ids(reader, at(topic, version - 1), at(topic, version)) == [version - 1]


def test_a_row_is_rewritten_a_few_times_only(topics: Topics, topic: Topic, clock: Clock):
    upkeep = tending(topics, clock, replace(FEW, compact_after=MINUTE))
    written = 0
    for _ in range(30):
        fill(topic, clock, 10, every=timedelta(seconds=10))
        before = {segment.file.path for segment in topic.segments()}
        upkeep.run_once()
        new = [s for s in topic.segments() if s.file.path not in before]
        written += sum(segment.file.rows for segment in new)
    assert written < 4 * 300
    assert len(live(topic)) < 30
    assert all_ids(topic) == list(range(300))


def test_files_of_half_the_target_are_left_alone(topics: Topics, topic: Topic, clock: Clock):
    fill(topic, clock, 40)
    size = (
        DeltaTable(topic.location.local)
        .get_add_actions(flatten=True)
        .column("size_bytes")
        .to_pylist()
    )
    target = 2 * min(size)
    tending(topics, clock, replace(FEW, target_bytes=target)).run_once()
    assert not topic.segments()


def test_a_checkpoint_is_made_and_old_commits_leave_the_log(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 30)
    policy = replace(FEW, checkpoint_versions=10, log_versions=5)
    upkeep = tending(topics, clock, policy)
    upkeep.run_once()
    fill(topic, clock, 10)
    upkeep.run_once()
    assert topic.log.checkpoint() >= 40
    assert min(topic.log.versions()) > 20
    assert topic.log.oldest() == 0
    assert all_ids(Topics(topic.location.parent).get("t")) == list(range(40))
    assert receipt_figures(topic.log.commit(3).receipt) == {"batch": 2}


def test_an_idle_topic_is_not_even_opened(topics: Topics, topic: Topic, clock: Clock):
    fill(topic, clock, 3)
    upkeep = tending(topics, clock, FEW)
    upkeep.run_once()
    checkpoint = topic.location.local / "_delta_log" / "_last_checkpoint"
    checkpoint.write_text("damaged")  # whoever opened the table would fail
    (topic.location.local / "_delta_log" / f"{1:020d}.json").write_text("damaged")
    upkeep.run_once()
    assert topic.log.newest(3) == 3


def test_retention_removes_whole_versions_by_age(topics: Topics, topic: Topic, clock: Clock):
    fill(topic, clock, 10, every=DAY)
    tending(topics, clock).run_once()
    assert topic.lost() == 4
    assert topic.first() == 5
    assert all_ids(topic) == list(range(4, 10))
    assert topic.describe().rows == 6


def test_retention_by_size_keeps_the_newest_version(topics: Topics, topic: Topic, clock: Clock):
    fill(topic, clock, 10)
    limits = TopicRetention(age=None, size_bytes=1)
    tending(topics, clock, UpkeepPolicy(retention=limits)).run_once()
    assert all_ids(topic) == [9]


def test_a_topic_may_have_a_retention_of_its_own(topics: Topics, clock: Clock):
    for name in ("short", "long"):
        fill(topics.get(name), clock, 5)
    topics.get("long").configure(TopicRetention(age=30 * DAY))
    upkeep = tending(topics, clock)
    upkeep.run_once()
    clock.pass_by(8 * DAY)
    upkeep.run_once()
    assert topics.get("short").describe().rows == 0
    assert topics.get("long").describe().rows == 5


def test_a_lagging_reader_is_told_what_it_lost_and_how_to_go_on(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 10, every=DAY)
    upkeep = tending(topics, clock)
    upkeep.run_once()
    reader = TopicReader(topic)
    still = reader.latest(at(topic, 2), ReadLimit(rows=1))
    assert ids(reader, at(topic, 2), still) == [2]  # the file is there for the grace time
    clock.pass_by(2 * HOUR)
    upkeep.run_once()
    with pytest.raises(DataLostError, match="versions 3 to 4") as caught:
        reader.latest(at(topic, 2), ReadLimit(rows=1))
    assert "to version 4" in caught.value.fix
    with pytest.raises(DataLostError):
        reader.files(at(topic, 2), still)
    assert all_ids(topic, at(topic, 4)) == list(range(4, 10))


def test_a_reader_without_a_position_starts_behind_what_is_lost(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 10, every=DAY)
    upkeep = tending(topics, clock)
    for _ in range(3):
        upkeep.run_once()
        clock.pass_by(2 * HOUR)
    assert all_ids(topic) == list(range(4, 10))


def test_nothing_is_lost_for_a_reader_that_stood_at_the_last_row_of_long_ago(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 30)
    position = TopicReader(topic).latest(Position(), ReadLimit())
    policy = replace(FEW, checkpoint_versions=5, log_versions=1)
    for _ in range(30):
        clock.pass_by(DAY)
        tending(topics, clock, policy).run_once()
    assert topic.describe().rows == 0
    assert all_ids(topic, position) == []
    fill(topic, clock, 1)
    assert all_ids(topic, position) == [30]


def test_commits_are_forgotten_with_their_rows_and_marks_are_not(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 30, every=HOUR)
    mark = Mark("gone", 7, 1)
    append(topic, [[77]], mark, clock.now)
    policy = replace(FEW, checkpoint_versions=5, log_versions=1)
    upkeep = tending(topics, clock, policy)
    for _ in range(12):
        upkeep.run_once()
        assert topic.receipt(mark) == mark.receipt({"batch": 7}) or topic.lost() >= 31
        fill(topic, clock, 6)
        clock.pass_by(DAY)
    assert topic.log.oldest() > 31
    assert topic.receipt(mark) == ""
    with pytest.raises(StaleEpochError):
        append(topic, [[78]], mark, clock.now)
    with pytest.raises(StaleEpochError):
        topic.receipt(Mark("gone", 6, 1))
    with pytest.raises(DataLostError):
        all_ids(topic, at(topic, 2))


def test_a_missing_file_that_retention_did_not_remove_is_reported(topic: Topic, clock: Clock):
    fill(topic, clock, 3)
    (file,) = topic.log.commit(2).added
    (topic.location.local / file.path).unlink()
    with pytest.raises(DataLostError, match="not because of its retention"):
        all_ids(topic)


def test_what_crashed_attempts_staged_is_cleared_after_a_day(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 1)
    clock.now = datetime.now(UTC)
    after_restore = 1_800_000_000_000  # a restored store goes on with numbers from the clock
    batches = (0, 1, 2, after_restore)
    folders = [topic.location.local / "data" / "task" / f"{batch:012d}-1" for batch in batches]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"x")
    committed = AddedFile(f"data/task/{1:012d}-1/part-0.parquet", 1, 0)
    topic.append([committed], Mark("task", 1, 1), "", clock.now)
    old = (clock.now - 2 * DAY).timestamp()
    large = topic.location.local / "data" / "task" / f"{5:012d}-1"
    large.mkdir()
    (large / "part-0.parquet").write_bytes(b"still written to")
    for folder in (folders[0], folders[1], folders[3]):
        os.utime(folder / "part-0.parquet", (old, old))
        os.utime(folder, (old, old))
    os.utime(large, (old, old))
    tending(topics, clock, FEW).run_once()
    assert [folder.exists() for folder in folders] == [False, True, True, False]
    assert large.exists()


class Killed(Targets):
    """Dies behind its decision."""

    @override
    def _roll_forward(self, additions: Sequence[Addition], mark: Mark) -> None:
        raise KeyboardInterrupt


def test_what_a_capture_staged_and_gave_up_is_cleared_after_a_day(
    topics: Topics, topic: Topic, clock: Clock
):
    """But not what it may be about to commit, or has decided to add and did not yet."""
    fill(topic, clock, 1)
    clock.now = datetime.now(UTC)
    given_up, staged, decided, added = (part(topic, [{"id": n}]) for n in range(4))
    topic.append([added], Mark("c", 1, 1), "", clock.now)
    old = (clock.now - 2 * DAY).timestamp()
    for file in (given_up, decided, added):
        os.utime(topic.location.local / file.path, (old, old))
    targets = Killed(topic.location.parent, "other", "c")
    additions = [Addition(topic.name, "c", [decided])]
    targets.prepare(additions)
    mark = Mark("c", 2, 1)
    with pytest.raises(KeyboardInterrupt):
        targets.commit(additions, mark, Counts())
    tending(topics, clock, FEW).run_once()
    there = [
        (topic.location.local / file.path).exists()
        for file in (given_up, staged, decided, added)
    ]
    assert there == [False, True, True, True]
    settled = Targets(topic.location.parent, "other", "c").settle(mark)
    assert settled == (Counts(), [topic.name])
    assert {2, 3} <= set(all_ids(topic))


def test_folders_of_attempts_go_with_their_last_file(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 1)
    number = 1_800_000_000_000
    attempt = topic.location.local / "data" / "made" / f"{number}-1"
    attempt.mkdir(parents=True)
    for each in range(12):
        file = part(topic, [{"id": each}])
        name = (topic.location.local / file.path).rename(attempt / f"{each}.parquet")
        moved = replace(file, path=name.relative_to(topic.location.local).as_posix())
        topic.append([moved], Mark("b", each, 1), "", clock.now)
    upkeep = tending(topics, clock, FEW)
    for _ in range(3):
        clock.pass_by(2 * HOUR)
        upkeep.run_once()
    assert not attempt.exists()


def test_two_workers_do_not_rewrite_the_same_rows(topic: Topic, clock: Clock):
    policy = replace(FEW, every=timedelta(0), retention=TopicRetention(age=2 * HOUR))
    several = [tending(Topics(topic.location.parent), clock, policy) for _ in range(4)]
    for number in range(1, 5):
        fill(topic, clock, 30)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda upkeep: upkeep.run_once(), several))
        rows = (
            DeltaTable(topic.location.local)
            .to_pyarrow_table(columns=["value"])["value"]
            .to_pylist()
        )
        held = sorted(row["id"] for row in rows)
        assert held == all_ids(topic, at(topic, topic.lost()))
        assert held == list(range(held[0], 30 * number))


def test_a_topic_that_cannot_be_tended_does_not_stop_the_others(topics: Topics, clock: Clock):
    fill(topics.get("a"), clock, 12)
    fill(topics.get("b"), clock, 12)
    clock.pass_by(HOUR)
    (file,) = topics.get("a").log.commit(2).added
    (topics.get("a").location.local / file.path).write_bytes(b"not parquet")
    tending(topics, clock, FEW).run_once()
    assert not topics.get("a").segments()
    assert topics.get("b").segments()


def test_the_log_of_a_captures_journal_does_not_grow_for_ever(tmp_path: Path, clock: Clock):
    journal = Topic("~journal", Location.of(tmp_path / "~captures" / "one"))
    policy = replace(FEW, checkpoint_versions=5, log_versions=5)
    upkeep = tending(Topics(Location.of(tmp_path)), clock, policy)
    for _ in range(5):
        fill(journal, clock, 10, every=DAY)
        upkeep.run_once()
    assert len(list(journal.log.versions())) < 20
    assert journal.log.oldest() > 10
    assert receipt_figures(journal.receipt(Mark("a", 49, 1)) or "") == {"batch": 49}


def test_files_that_grow_schemas_are_rewritten_with_all_fields(
    topics: Topics, topic: Topic, clock: Clock
):
    fill(topic, clock, 12)
    clock.pass_by(HOUR)
    file = part(topic, [{"id": 12}], first=0)
    topic.append([file], Mark("b", 1, 1), "", START)
    tending(topics, clock, FEW).run_once()
    assert all_ids(topic) == list(range(13))


def test_a_file_beside_the_topics_is_no_topic_and_keeps_none_of_them_from_upkeep(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes").write_text("not a topic")
    topic = Topics(Location.of(tmp_path)).get("t")
    topic.prepare(Schema.struct({"value": Schema.string()}))
    assert [found.name for found in Topics(Location.of(tmp_path)).list()] == ["t"]


def test_an_error_that_stays_is_told_once_and_no_topic_waits_for_another(
    topics: Topics, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "good"):
        fill(topics.get(name), clock, 8)
    run = Compaction.run

    def failing(work: Compaction) -> bool:
        if work.topic.name == "bad":
            raise PermissionError(13, "Permission denied", "/topics/bad")
        return run(work)

    upkeep = tending(topics, clock, FEW)
    with capture_logs() as told:
        with monkeypatch.context() as patched:
            patched.setattr(Compaction, "run", failing)
            for _ in range(30):
                upkeep.run_once()  # most looks find nothing that is due
                clock.pass_by(timedelta(seconds=10))
        clock.pass_by(HOUR)
        upkeep.run_once()
    assert len(live_files(DeltaTable(topics.get("good").location.local))) < 8
    assert [(each["event"], each["topic"]) for each in told] == [
        ("upkeep failed", "bad"),
        ("upkeep works again", "bad"),
    ]


def test_topics_that_may_not_be_read_are_told_in_words(
    topics: Topics, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def denied() -> list[Topic]:
        tried.set()
        raise PermissionError(13, "Permission denied", "/topics/t")

    monkeypatch.setattr("headrace.topics.upkeep._LOOK_SECONDS", 0.001)
    monkeypatch.setattr(topics, "list", denied)
    with capture_logs() as told:
        with maintained(topics, clock, lambda _: ()):
            tried.wait(5)
        assert told
    assert "Permission denied: '/topics/t'" in told[0]["why"]
    assert "exc_info" not in told[0]
