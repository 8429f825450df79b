"""Attempts at one batch that overlap leave the dead letters of one of them, readable."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.dataplane.dead_letters import (
    DeadLetterPart,
    DeadLetterWriter,
    Staged,
    StagedDeadLetters,
)
from headrace.model import Counts, TaskId
from headrace.sdk import DataLostError, Mark, Position, ReadLimit, StateError
from headrace.sdk.arrow import to_arrow
from headrace.sdk.delta import AddedFile, discard_other_attempts, staging_folder
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.topics import LETTERS, Topic, TopicReader, Topics

FOLDER = "letters"
CAUSES = {"TRANSFORMATION X": 1}


def part(
    letters: DeadLetterWriter | None, epoch: int, of_range: str = "range", sink: str = "first"
) -> DeadLetterPart:
    """Return the letters of an attempt's part for a sink."""
    return DeadLetterPart(letters, Mark(f"c-uid-0-{sink}", 7, epoch, of_range), "c-uid-0")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("c.dlq")


@pytest.fixture
def letters(topic: Topic) -> DeadLetterWriter:
    return DeadLetterWriter(task=TaskId("c", 0), topic=topic, appended=lambda _: None)


def stage(topic: Topic, epoch: int, *refused_by: str) -> StagedDeadLetters:
    """Stage a letter of an attempt as Spark does, and those that a sink refused."""
    chain = _staged(topic, part(None, epoch).chain_mark, f"letter of epoch {epoch}")
    refused = [
        _staged(topic, part(None, epoch, sink=n).sink_mark, f"{n} refused") for n in refused_by
    ]
    return StagedDeadLetters(chain, *refused)


def _staged(topic: Topic, mark: Mark, value: str) -> Staged:
    schema = to_arrow(topic.prepare(LETTERS))
    folder = topic.location.local / staging_folder(mark, FOLDER)
    folder.mkdir(parents=True)
    file = folder / "part-0.parquet"
    pq.write_table(pa.Table.from_pylist([{"value": value, "offset": 0}], schema), file)
    path = file.relative_to(topic.location.local).as_posix()
    return Staged(CAUSES, [AddedFile(path, file.stat().st_size, 1)])


def held(topic: Topic) -> list[str]:
    """Return the letters as readers get them."""
    reader = TopicReader(topic)
    files = reader.files(Position(), reader.latest(Position(), ReadLimit()))
    tables = [pq.read_table(topic.location.local / each.file.path) for each in files]
    return [row["value"] for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_the_letters_of_the_chain_come_once_whichever_sink_decides_for_them(
    topic: Topic, letters: DeadLetterWriter, first: int, second: int
) -> None:
    of_first, of_second = stage(topic, first, "a"), stage(topic, second, "b")
    part(letters, first, sink="a").append(of_first)
    for _ in range(2):
        part(letters, second, sink="b").append(of_second)
    assert held(topic) == [f"letter of epoch {first}", "a refused", "b refused"]


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_what_one_sink_refused_in_one_attempt_stays_and_the_other_is_told(
    topic: Topic, letters: DeadLetterWriter, first: int, second: int
) -> None:
    staged = {epoch: stage(topic, epoch, "a") for epoch in (1, 2)}
    part(letters, first, sink="a").append(staged[first])
    with pytest.raises(StaleEpochError):
        part(letters, second, sink="a").append(staged[second])
    assert held(topic) == [f"letter of epoch {first}", "a refused"]


def test_the_letters_of_another_range_are_refused(
    topic: Topic, letters: DeadLetterWriter
) -> None:
    staged = {epoch: stage(topic, epoch) for epoch in (1, 2)}
    part(letters, 1).append(staged[1])
    with pytest.raises(StaleEpochError, match="other records"):
        part(letters, 2, "another").append(staged[2])
    assert held(topic) == ["letter of epoch 1"]


def test_an_attempt_leaves_alone_what_a_newer_owner_stages(
    topic: Topic, letters: DeadLetterWriter
) -> None:
    staged = {epoch: stage(topic, epoch) for epoch in (1, 2, 3)}
    part(letters, 2).append(staged[2])
    there = {
        each: (
            topic.location.local / staging_folder(part(None, each).chain_mark, FOLDER)
        ).exists()
        for each in staged
    }
    assert there == {1: False, 2: True, 3: True}


def test_the_next_owner_appends_the_letters_that_the_sinks_receipt_names(
    topic: Topic, letters: DeadLetterWriter
) -> None:
    staged = stage(topic, 1)
    one = DeadLetterPart(letters, Mark("c-uid-0", 7, 1, "range"), "c-uid-0")
    counts = Counts(read=1, rejected=1, causes=CAUSES)
    receipt = one.receipt(counts, staged)  # a crash comes behind the sink's transaction
    for epoch in (2, 3, 2):
        owner = DeadLetterPart(letters, Mark("c-uid-0", 7, epoch, "range"), "c-uid-0")
        assert owner.settled(receipt) == counts
    one.append(staged)  # the first wakes up
    assert held(topic) == ["letter of epoch 1"]


@pytest.mark.parametrize("now", ["another.dlq", None])
def test_the_letters_of_an_unfinished_batch_go_nowhere_but_to_their_topic(
    topic: Topic, letters: DeadLetterWriter, tmp_path: Path, now: str | None
) -> None:
    staged = stage(topic, 1)
    mark = Mark("c-uid-0", 7, 1, "range")
    counts = Counts(read=1, rejected=1, causes=CAUSES)
    receipt = DeadLetterPart(letters, mark, "c-uid-0").receipt(counts, staged)
    other = (
        None if now is None else replace(letters, topic=Topics(Location.of(tmp_path)).get(now))
    )
    with pytest.raises(StateError, match=r"belong to the topic c\.dlq") as refused:
        DeadLetterPart(other, mark, "c-uid-0").settled(receipt)
    assert "errors.deadletterqueue.topic.name" in refused.value.fix
    assert DeadLetterPart(letters, mark, "c-uid-0").settled(receipt) == counts
    assert held(topic) == ["letter of epoch 1"]


def test_files_that_are_gone_are_not_named_in_the_topic(
    topic: Topic, letters: DeadLetterWriter
) -> None:
    staged = stage(topic, 1)
    (topic.location.local / staged.chain.files[0].path).unlink()
    with pytest.raises(DataLostError, match="are missing"):
        part(letters, 1).append(staged)
    assert held(topic) == []


def test_attempts_with_long_numbers_are_told_apart_and_foreign_names_stay(
    tmp_path: Path,
) -> None:
    number = int(datetime.now(UTC).timestamp() * 1000)
    folders = [tmp_path / staging_folder(Mark("c", number, epoch)) for epoch in (9, 10, 11)]
    foreign = [folders[0].with_name(f"{number}{rest}") for rest in ("-old", "-", ".bak", "-²")]
    for folder in folders + foreign:
        folder.mkdir(parents=True)
    discard_other_attempts(Location.of(tmp_path), Mark("c", number, 10))
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert all(folder.exists() for folder in foreign)
