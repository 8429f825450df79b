"""Readers plan batches within their limits, and positions mean what they say."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.topics.made_topics import START, append, at, ids, set_time, tend_after

from headrace.sdk import (
    ConfigError,
    DataLostError,
    Lag,
    Mark,
    Position,
    ReadLimit,
    StateError,
)
from headrace.sdk.location import Location
from headrace.topics import (
    Topic,
    TopicReader,
    Topics,
    UpkeepPolicy,
    parse_start,
)

ALL = ReadLimit()


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """A topic with the versions 1: 0-2 and 3-5 in two files, 2: 6-8, 3: 9 in three files."""
    topic = Topics(Location.of(tmp_path)).get("t")
    for batch, parts in enumerate([[[0, 1, 2], [3, 4, 5]], [[6, 7, 8]], [[9], [10], [11]]]):
        append(topic, parts, Mark("a", batch, 1), START + timedelta(minutes=batch))
    return topic


def given(version: int) -> Position:
    """Return the position behind a version as a person sets it."""
    return Position.of({"topic": "t"}, {"version": version})


def test_a_topic_that_is_not_there_has_nothing_to_read(tmp_path: Path):
    reader = TopicReader(Topics(Location.of(tmp_path)).get("none"))
    assert reader.latest(Position(), ALL) == Position()
    assert reader.files(Position(), Position()) == []


def test_a_reader_without_a_position_gets_everything(topic: Topic):
    reader = TopicReader(topic)
    end = reader.latest(Position(), ALL)
    assert end == at(topic, 3)
    assert ids(reader, Position(), end) == list(range(12))


def test_a_reader_that_has_everything_stays_where_it_is(topic: Topic):
    assert TopicReader(topic).latest(at(topic, 3), ALL) == at(topic, 3)


@pytest.mark.parametrize(
    ("rows", "version", "index"), [(1, 1, 1), (3, 1, 1), (5, 1, 1), (6, 1, None), (10, 3, 1)]
)
def test_a_limit_on_rows_may_end_a_batch_within_a_version(
    topic: Topic, rows: int, version: int, index: int | None
):
    end = TopicReader(topic).latest(Position(), ReadLimit(rows=rows))
    assert end == at(topic, version, index)


def test_a_file_larger_than_the_limit_is_a_batch_of_its_own(topic: Topic):
    reader = TopicReader(topic)
    position, batches = Position(), []
    while (end := reader.latest(position, ReadLimit(size_bytes=1))) != position:
        batches.append(ids(reader, position, end))
        position = end
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9], [10], [11]]


def test_a_bound_is_never_passed(topic: Topic):
    reader = TopicReader(topic)
    limit = ReadLimit(until=at(topic, 3, 2))
    end = reader.latest(Position(), limit)
    assert ids(reader, Position(), end) == list(range(11))
    assert reader.latest(end, limit) == end
    assert reader.latest(at(topic, 3), limit) == at(topic, 3)


def test_the_lag_is_what_lies_between_a_position_and_the_end_or_a_bound(topic: Topic):
    reader = TopicReader(topic)
    assert reader.lag(Position()).rows == 12
    assert reader.lag(at(topic, 1)).rows == 6
    assert reader.lag(at(topic, 1), until=at(topic, 3, 2)).rows == 5
    assert reader.lag(at(topic, 3)) == Lag(0, 0)


def test_versions_without_rows_move_the_position_only(topic: Topic):
    topic.append((), Mark("b", 1, 1), "", START)
    reader = TopicReader(topic)
    end = reader.latest(at(topic, 3), ALL)
    assert end == at(topic, 4)
    assert reader.files(at(topic, 3), end) == []


@pytest.mark.parametrize(
    ("text", "rows"),
    # Named, as every process that runs a share of the tests has to see the same names.
    [
        ("earliest", list(range(12))),
        ("latest", []),
        ("version:2", list(range(6, 12))),
        (f"time:{(START + timedelta(minutes=1)).isoformat()}", list(range(6, 12))),
        (f"time:{(START + timedelta(seconds=61)).isoformat()}", [9, 10, 11]),
        ("time:2001-01-01", list(range(12))),
        ("time:2999-01-01T00:00:00Z", []),
    ],
    ids=["earliest", "latest", "version", "minute", "second", "before", "after"],
)
def test_a_new_reader_begins_where_it_is_told_to(topic: Topic, text: str, rows: list[int]):
    set_time(topic, 0, START - timedelta(minutes=1))
    reader = TopicReader(topic, start=parse_start(topic, text))
    assert ids(reader, Position(), reader.latest(Position(), ALL)) == rows


def test_a_range_that_another_topic_moves_in_is_refused(topic: Topic):
    reader = TopicReader(topic)
    other = Position.of({"topic": "other"}, {"version": 3})
    for end in (other, at(topic, 1).merged(other)):
        for read in (reader.files, reader.rows, reader.count):
            with pytest.raises(StateError, match=r'\{"topic":"other"\}'):
                read(Position(), end)


def test_a_range_that_goes_backwards_is_refused(topic: Topic):
    with pytest.raises(StateError, match="begins after version 3 and ends after version 1"):
        TopicReader(topic).files(at(topic, 3), at(topic, 1, 1))


def test_a_range_from_the_beginning_is_not_shortened_by_retention(topic: Topic):
    end = at(topic, 2)
    policy = UpkeepPolicy(log_versions=0, checkpoint_versions=1)
    tend_after(Topics(topic.location.parent), timedelta(days=8), policy)
    with pytest.raises(DataLostError, match="Retention has removed"):
        TopicReader(topic).files(Position(), end)


@pytest.mark.parametrize("text", ["", "yesterday", "version:x", "time:noon"])
def test_a_place_that_makes_no_sense_is_refused(topic: Topic, text: str):
    with pytest.raises(ConfigError):
        parse_start(topic, text)


def test_a_commit_that_is_gone_is_no_reason_to_skip_rows(topic: Topic):
    before, behind = at(topic, 1), at(topic, 2)
    DeltaTable(topic.location.local).create_checkpoint()
    (topic.location.local / "_delta_log" / f"{2:020d}.json").unlink()
    reader = TopicReader(Topics(topic.location.parent).get("t"))
    with pytest.raises(DataLostError, match="Version 2 of topic t is missing"):
        reader.latest(before, ALL)
    assert ids(reader, behind, reader.latest(behind, ALL)) == [9, 10, 11]


def test_a_topic_that_is_made_anew_is_not_mistaken_for_the_old_one(topic: Topic):
    assert topic.log.commit(1).rows == 6
    shutil.rmtree(topic.location.local)
    new = Topics(topic.location.parent).get("t")
    append(new, [[100]], Mark("a", 1, 1))
    reader = TopicReader(new)
    assert ids(reader, Position(), reader.latest(Position(), ALL)) == [100]


@pytest.mark.parametrize("versions", [0, 3])
def test_a_topic_that_ends_before_the_position_is_another_one(
    tmp_path: Path, versions: int
) -> None:
    topic = Topics(Location.of(tmp_path)).get("t")
    for number in range(1, 9):
        append(topic, [[number]], Mark("old", number, 1))
    reader = TopicReader(topic)
    stood = reader.latest(Position(), ALL)
    shutil.rmtree(topic.location.local)
    anew = Topics(Location.of(tmp_path)).get("t")
    for number in range(1, versions + 1):
        append(anew, [[number]], Mark("new", number, 1))
    for each in (reader, TopicReader(anew)):
        with pytest.raises(DataLostError, match="created again, or restored") as lost:
            each.latest(stood, ALL)
        assert "reset the offsets" in str(lost.value.fix)


@pytest.mark.parametrize("versions", [8, 12])
def test_a_topic_that_was_made_anew_is_told_also_when_it_has_grown_past_the_position(
    tmp_path: Path, versions: int
) -> None:
    topic = Topics(Location.of(tmp_path)).get("t")
    for number in range(1, 9):
        append(topic, [[number]], Mark("old", number, 1))
    reader = TopicReader(topic)
    begun = reader.latest(Position(), ReadLimit(rows=3))
    stood = reader.latest(begun, ALL)
    shutil.rmtree(topic.location.local)
    anew = Topics(Location.of(tmp_path)).get("t")
    for number in range(1, versions + 1):
        append(anew, [[number]], Mark("new", number, 1))
    for each in (reader, TopicReader(anew)):
        for look in (
            lambda each=each: each.latest(stood, ALL),
            lambda each=each: each.lag(begun),
            lambda each=each: each.files(begun, stood),
            lambda each=each: each.files(Position(), begun),
        ):
            with pytest.raises(DataLostError, match="created again, or restored") as lost:
                look()
            assert "reset the offsets" in str(lost.value.fix)


def test_a_topic_that_was_put_back_and_written_again_is_told(topic: Topic, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(topic.location.local, copy)
    append(topic, [[12]], Mark("a", 3, 1))
    stood = TopicReader(topic).latest(Position(), ALL)
    shutil.rmtree(topic.location.local)
    copy.rename(topic.location.local)
    back = Topics(Location.of(tmp_path)).get("t")
    assert TopicReader(back).latest(at(back, 3), ALL) == at(back, 3)
    for batch in (3, 4):
        append(back, [[10 * batch]], Mark("a", batch, 1))
    with pytest.raises(DataLostError, match="has a different version 4 than the one"):
        TopicReader(back).latest(stood, ALL)
    reader = TopicReader(back)
    assert ids(reader, at(back, 3), reader.latest(at(back, 3), ALL)) == [30, 40]


@pytest.mark.parametrize("start", ["latest", "earliest", "version:3"])
def test_a_place_to_start_from_is_one_in_this_topic_only(topic: Topic, start: str):
    set_time(topic, 0, START - timedelta(minutes=1))
    begin = parse_start(topic, start)
    shutil.rmtree(topic.location.local)
    anew = Topics(topic.location.parent).get("t")
    for number in range(9):
        append(anew, [[number]], Mark("new", number, 1))
    reader = TopicReader(anew)
    if start == "earliest":  # which is before anything that could differ
        assert ids(reader, begin, reader.latest(begin, ALL)) == list(range(9))
        return
    for look in (lambda: reader.latest(begin, ALL), lambda: reader.lag(begin)):
        with pytest.raises(DataLostError, match="created again, or restored"):
            look()


def test_a_position_that_names_no_commit_gets_it_with_the_next_batch_only(topic: Topic):
    reader = TopicReader(topic)
    assert reader.latest(given(3), ALL) == given(3)
    assert reader.latest(given(2), ReadLimit(until=given(2))) == given(2)
    end = reader.latest(given(2), ALL)
    assert end == at(topic, 3)
    assert ids(reader, given(2), end) == ids(reader, given(2), given(3)) == [9, 10, 11]
    assert reader.lag(given(2)).rows == 3
