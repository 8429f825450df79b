"""Who reads a topic, as the store knows it."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import Counts, Reading, TaskId
from headrace.sdk import Position
from headrace.store import Store
from headrace.worker import TopicReadings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store() -> Store:
    return Store()


def begin(store: Store, task: TaskId, start: Position, end: Position) -> None:
    lease = store.lease(task, "me", NOW, timedelta(seconds=30))
    if store.position(task) != start:
        store.set_position(task, lease.epoch, start)
    store.begin_batch(task, lease.epoch, start, end, NOW)


def finish(store: Store, task: TaskId) -> None:
    (lease,) = store.leases(task.connector)
    batch = store.unfinished_batch(task)
    assert batch is not None
    store.finish_batch(task, lease.epoch, batch.id, Counts(), NOW)


def at(version: int, **more: int) -> Position:
    return Position.of({"topic": "t"}, {"version": version, **more})


def look(store: Store, topic: str = "t") -> list[Reading]:
    return list(TopicReadings(store)(topic))


def test_a_task_stands_where_its_unfinished_batch_begins(store: Store) -> None:
    task = TaskId("sink", 0)
    store.register("sink")
    begin(store, task, at(3), at(7))
    assert look(store) == [Reading(reader=str(task), version=3, running=True)]
    finish(store, task)
    assert look(store) == [Reading(reader=str(task), version=7)]


def test_a_version_that_is_read_in_part_is_still_needed(store: Store) -> None:
    store.register("sink")
    begin(store, TaskId("sink", 0), at(3), at(7, index=2))
    finish(store, TaskId("sink", 0))
    assert look(store)[0].version == 6


def test_readers_of_other_topics_and_removed_connectors_do_not_count(
    store: Store,
) -> None:
    store.register("sink")
    begin(store, TaskId("sink", 0), at(3), at(7))
    assert look(store, "other") == []
    store.remove("sink")
    assert look(store) == []


def test_what_a_capture_has_gathered_stays_until_its_connector_has_begun_to_read(
    store: Store,
) -> None:
    store.register("lines")
    store.lease(TaskId("lines", 0), "me", NOW, timedelta(seconds=30))
    assert look(store, "lines.capture") == [Reading(reader="lines", version=-1)]
    assert look(store, "gone.capture") == []


def test_many_topics_cost_one_look_at_the_store(store: Store) -> None:
    store.register("sink")
    passed = [0.0]
    readings = TopicReadings(store, lambda: passed[0])
    assert list(readings("t")) == []
    begin(store, TaskId("sink", 0), at(3), at(7))
    assert list(readings("t")) == []
    passed[0] = 60.0
    assert len(readings("t")) == 1
