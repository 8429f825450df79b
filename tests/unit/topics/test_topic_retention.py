"""A topic keeps its rows as long as it is configured to, and as its readers need them."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.unit.topics.made_topics import (
    START,
    Clock,
    append,
    at,
    ids,
    part,
    tending,
)

from headrace.model import Reading, TopicRetention
from headrace.sdk import ConfigError, Mark, Position, ReadLimit, Schema
from headrace.sdk.location import Location
from headrace.topics import (
    LETTERS,
    Topic,
    TopicReader,
    Topics,
    UpkeepPolicy,
    topic_row_schema,
)

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
AT_ONCE = UpkeepPolicy(every=timedelta(0))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(Location.of(tmp_path))


@pytest.fixture
def topic(topics: Topics, clock: Clock) -> Topic:
    """A topic with three versions, of now."""
    topic = topics.get("t")
    for number in (1, 2, 3):
        append(topic, [[number]], Mark("source", number, 1), clock.now)
    return topic


def left(topic: Topic) -> list[int]:
    reader = TopicReader(topic)
    start = at(topic, topic.lost()) if topic.lost() >= 0 else Position()
    return ids(reader, start, reader.latest(start, ReadLimit()))


class Standing:
    """Readers that stand where a test puts them."""

    def __init__(self, *readings: Reading) -> None:
        self.readings: Sequence[Reading] = readings

    def __call__(self, topic: str) -> Sequence[Reading]:
        return self.readings


class TestReaders:
    def test_rows_that_a_sink_has_yet_to_read_stay_however_old_they_are(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        sink = Standing(Reading(reader="sink-0", version=1))
        upkeep = tending(topics, clock, AT_ONCE, sink)
        upkeep.run_once()
        for _ in range(10):
            clock.pass_by(DAY)
            upkeep.run_once()
        assert left(topic) == [2, 3]
        assert ids(TopicReader(topic), at(topic, 1), at(topic, 3)) == [2, 3]
        sink.readings = [Reading(reader="sink-0", version=3)]
        clock.pass_by(DAY)
        upkeep.run_once()
        assert left(topic) == []

    def test_they_stay_too_where_the_topic_is_too_large(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        topic.configure(TopicRetention(age=None, size_bytes=1))
        sink = Standing(Reading(reader="sink-0", version=2))
        tending(topics, clock, AT_ONCE, sink).run_once()
        assert left(topic) == [3]
        sink.readings = [Reading(reader="sink-0", version=0)]
        append(topic, [[4]], Mark("source", 4, 1), clock.now)
        tending(topics, clock, AT_ONCE, sink).run_once()
        assert left(topic) == [3, 4]

    def test_a_topic_may_remove_them_as_kafka_does(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        topic.configure(TopicRetention(unread=True))
        upkeep = tending(topics, clock, AT_ONCE, Standing(Reading(reader="s-0", version=1)))
        upkeep.run_once()
        clock.pass_by(8 * DAY)
        upkeep.run_once()
        assert left(topic) == []

    def test_who_holds_rows_back_is_logged_once(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        sinks = Standing(Reading(reader="slow-0", version=1), Reading(reader="b-0", version=3))
        upkeep = tending(topics, clock, AT_ONCE, sinks)
        upkeep.run_once()
        with structlog.testing.capture_logs() as logged:
            for _ in range(10):
                clock.pass_by(DAY)
                upkeep.run_once()
        told = [entry for entry in logged if "readers" in entry]
        assert [(each["topic"], each["readers"]) for each in told] == [("t", "slow-0")]

    def test_files_that_a_batch_reads_stay_past_the_grace_and_go_after_it(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        policy = UpkeepPolicy(every=timedelta(0), compact_files=2, compact_after=timedelta(0))
        sink = Standing(Reading(reader="sink-0", version=1, running=True))
        upkeep = tending(topics, clock, policy, sink)
        paths = [
            topic.location.local / f.path for v in (2, 3) for f in topic.log.commit(v).added
        ]
        upkeep.run_once()
        assert topic.segments()
        for _ in range(5):
            clock.pass_by(HOUR)
            upkeep.run_once()
        assert all(path.exists() for path in paths)
        sink.readings = [Reading(reader="sink-0", version=3)]
        clock.pass_by(HOUR)
        upkeep.run_once()
        assert not any(path.exists() for path in paths)


class TestConfiguration:
    def test_dead_letters_are_kept_until_somebody_says_how_long(
        self, topics: Topics, clock: Clock
    ) -> None:
        topic = topics.get("t.dlq")
        topic.prepare(LETTERS)
        assert topic.retention().age is None
        topic.configure(TopicRetention(age=DAY))
        assert topic.retention().age == DAY

    def test_it_is_stored_with_the_topic_and_outlives_changes_of_the_schema(
        self, topics: Topics, topic: Topic
    ) -> None:
        wanted = TopicRetention(age=None, size_bytes=5, unread=True)
        topic.configure(wanted)
        more = Schema.struct({"more": Schema.string(optional=True)})
        topic.append([part(topic, [{"more": "x"}], more)], Mark("source", 4, 1), "", START)
        assert Topics(topic.location.parent).get("t").retention() == wanted

    def test_a_topic_is_made_with_what_its_source_says(self, topics: Topics) -> None:
        rows = topic_row_schema(Schema.string(), None)
        short, long = TopicRetention(age=HOUR), TopicRetention(age=None)
        topics.get("new").prepare(rows, short)
        topics.get("new").prepare(rows, long)  # it is there
        assert topics.get("new").retention() == short

    @pytest.mark.parametrize("limits", [{"age": timedelta(0)}, {"size_bytes": 0}])
    def test_what_would_keep_nothing_is_refused(self, topic: Topic, limits: Any) -> None:
        with pytest.raises(ConfigError):
            topic.configure(TopicRetention(**limits))


class TestClock:
    def test_a_clock_that_jumps_ahead_removes_nothing(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        upkeep = tending(topics, clock, AT_ONCE)
        upkeep.run_once()
        steady = clock.now.timestamp()
        upkeep._trusted.monotonic = lambda: steady
        clock.pass_by(8 * DAY)
        upkeep.run_once()
        clock.pass_by(-8 * DAY)
        upkeep.run_once()
        assert left(topic) == [1, 2, 3]

    def test_it_is_believed_when_it_has_gone_on_evenly_for_an_hour(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        upkeep = tending(topics, clock, AT_ONCE)
        upkeep.run_once()
        seconds = (8 * DAY).total_seconds()
        upkeep._trusted.monotonic = lambda: clock.seconds() - seconds
        clock.pass_by(8 * DAY)
        for _ in range(5):
            upkeep.run_once()
            assert left(topic) == [1, 2, 3]
            clock.pass_by(HOUR / 5)
        upkeep.run_once()
        assert left(topic) == []

    def test_a_process_that_starts_with_a_clock_far_ahead_waits(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        clock.pass_by(8 * DAY)
        tending(topics, clock, AT_ONCE).run_once()
        assert left(topic) == [1, 2, 3]

    def test_rows_that_were_appended_by_a_wrong_clock_do_not_make_it_right(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        tending(topics, clock, AT_ONCE).run_once()
        clock.pass_by(8 * DAY)
        append(topic, [[4]], Mark("source", 4, 1), clock.now)
        tending(topics, clock, AT_ONCE).run_once()
        assert left(topic) == [1, 2, 3, 4]

    def test_a_run_now_and_then_removes_what_is_old_at_the_second_look(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        for _ in range(3):
            tending(topics, clock, AT_ONCE).run_once()
            clock.pass_by(WEEK)
        assert left(topic) == []

    def test_upkeep_goes_on_when_the_clock_was_put_back(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        policy = UpkeepPolicy(compact_files=2, compact_after=timedelta(0))
        upkeep = tending(topics, clock, policy)
        clock.pass_by(DAY)
        upkeep.run_once()
        clock.pass_by(-DAY)
        append(topic, [[4]], Mark("source", 4, 1), clock.now)
        append(topic, [[5]], Mark("source", 5, 1), clock.now)
        upkeep.run_once()
        assert topic.segments()[-1].last == 6

    def test_rows_of_a_clock_that_was_behind_are_as_old_as_those_before_them(
        self, topics: Topics, topic: Topic, clock: Clock
    ) -> None:
        upkeep = tending(topics, clock, AT_ONCE)
        append(topic, [[4]], Mark("source", 4, 1), START - 365 * DAY)
        upkeep.run_once()
        assert left(topic) == [1, 2, 3, 4]
