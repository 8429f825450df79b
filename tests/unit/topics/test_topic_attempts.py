"""Of two attempts at one batch a topic takes one, and the other is told."""

import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.topics.made_topics import append, part

from headrace.sdk import DataLostError, Mark
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.topics import Topic, Topics

RANGE = "0123456789abcdef"
MINE = Mark("app", 7, 2, RANGE)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("t")


def rows(topic: Topic) -> int:
    return topic.describe().rows


def test_an_attempt_that_appends_again_changes_nothing_and_is_told_so(topic: Topic):
    file = part(topic, [{"id": 1}])
    first = topic.append([file], MINE, MINE.receipt({}), datetime.now(UTC))
    again = topic.append([file], MINE, MINE.receipt({}), datetime.now(UTC))
    assert (first.added, again.added) == (True, False)
    assert first.version == again.version
    assert rows(topic) == 1


@pytest.mark.parametrize(
    "other",
    [
        Mark("app", 7, 1, RANGE),
        Mark("app", 7, 3, RANGE),
        Mark("app", 7, 2, "another range"),
        Mark("app", 7, 3, "another range"),
        Mark("app", 6, 3, RANGE),
    ],
)
def test_a_batch_that_another_attempt_appended_is_refused(topic: Topic, other: Mark):
    append(topic, [[1, 2]], MINE)
    with pytest.raises(StaleEpochError):
        append(topic, [[3]], other)
    assert rows(topic) == 2
    assert topic.receipt(MINE) == MINE.receipt({"batch": 7})


def test_a_new_batch_with_a_number_that_the_topic_holds_is_not_lost(topic: Topic):
    append(topic, [list(range(10))], Mark("app", 7, 1, "from 0 to 10"))
    with pytest.raises(StaleEpochError, match="other records") as refused:
        append(topic, [list(range(500))], Mark("app", 7, 2, "from 0 to 500"))
    assert "store was set back" in str(refused.value.fix)
    assert rows(topic) == 10


def test_of_attempts_that_overlap_one_appends_and_all_others_are_told(tmp_path: Path):
    topics = [Topics(Location.of(tmp_path)).get("t") for _ in range(6)]
    files = [part(topic, [{"id": n}]) for n, topic in enumerate(topics)]
    barrier = threading.Barrier(len(topics))
    told: list[object] = []

    def attempt(epoch: int) -> None:
        mark = Mark("app", 7, epoch, RANGE)
        barrier.wait()
        try:
            done = topics[epoch].append(
                [files[epoch]], mark, mark.receipt({}), datetime.now(UTC)
            )
            told.append(done.added)
        except StaleEpochError as error:
            told.append(error)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(len(topics))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in told if not isinstance(each, StaleEpochError)] == [True]
    assert rows(topics[0]) == 1


def test_a_topic_whose_folder_is_removed_is_told_as_such(topic: Topic):
    append(topic, [[1]], Mark("app", 1, 1, RANGE))
    shutil.rmtree(topic.location.local)
    with pytest.raises(DataLostError, match="Topic t was deleted, or restored"):
        topic.append([], Mark("app", 2, 1, RANGE), "", datetime.now(UTC))
    append(topic, [[2]], Mark("app", 2, 1, RANGE))  # as after a restart: it is made anew
    assert rows(topic) == 1
