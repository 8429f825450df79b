"""Two workers that both take a capture for theirs lose no batch between them."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.topics.made_topics import part

from headrace.capture import CaptureSpec
from headrace.capture.targets import Addition, Targets
from headrace.model import Counts, TaskId
from headrace.sdk import Mark, Position
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.store import Store, StoreUnavailableError
from headrace.topics import Topic, Topics
from headrace.worker.capture_task import CaptureKeeping, CaptureTask

TASK, APP = TaskId("c", 0), "c-uid-0"
END = Position.of({"filename": "f"}, {"position": 99})
THREE = Counts(read=3, written=3)
LEASE = timedelta(seconds=30)


class Hosts:
    """Stands for the supervisor: launches a capture at once, in no process."""

    def attach(self, task: CaptureTask) -> None:
        task.launch()

    def detach(self, task: CaptureTask, *, hung: bool) -> None:
        """Nothing runs."""


class Capture:
    """What both workers and their hosts have in common."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.topic: Topic = Topics(Location.of(folder)).get("t")
        self.now = datetime.now(UTC)

    def targets(self) -> Targets:
        return Targets(Location.of(self.folder), "t", APP)

    def owner(self, name: str) -> CaptureTask:
        """Give the task to a worker, when the lease of the one before has run out."""
        self.now += 2 * LEASE
        lease = self.store.lease(TASK, name, self.now, LEASE)
        told = {"connector": "c", "task": 0, "application": APP, "topic": "t"}
        fields = dict.fromkeys(CaptureSpec.__dataclass_fields__)
        spec = CaptureSpec(**cast("Any", {**fields, **told, "topics_dir": str(self.folder)}))
        keeping = CaptureKeeping(
            store=self.store,
            hosts=cast("Any", Hosts()),
            targets=lambda _: self.targets(),
            appended=lambda _: None,
            clock=lambda: self.now,
        )
        task = CaptureTask(TASK, spec, keeping)
        task._lease = lease  # what start keeps, before a process is made
        return task

    def begin(self, task: CaptureTask) -> tuple[Mark, list[Addition]]:
        """Begin a batch of three rows as a host does, up to its commit."""
        begun = task._begin(END, THREE)
        assert task._lease is not None
        mark = Mark(APP, begun["batch"], task._lease.epoch, begun["range"])
        file = part(self.topic, [{"id": number} for number in range(3)])
        return mark, [Addition("t", APP, [file])]


@pytest.fixture(params=["memory", "sqlite"])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Capture]:
    store: Store = Store(None if request.param == "memory" else tmp_path / "store.db")
    yield Capture(store, tmp_path / "topics")
    store.close()


def test_a_worker_that_lost_its_lease_does_not_decide_the_new_owners_batch(
    capture: Capture,
) -> None:
    one, other = capture.owner("one"), capture.owner("other")
    mark, additions = capture.begin(other)
    # The first worker's connection to the store is back before its heartbeat.
    one.failure = StoreUnavailableError("The store did not answer.")
    with pytest.raises(StoreUnavailableError):
        one.step()
    with pytest.raises(StaleEpochError):
        one.step()
    capture.targets().commit(additions, mark, THREE)
    other._finish(mark.batch, THREE, ["t"])
    assert capture.store.position(TASK) == END
    assert capture.topic.describe().rows == 3


def test_a_host_whose_batch_was_given_up_is_told_and_finishes_nothing(
    capture: Capture,
) -> None:
    one = capture.owner("one")
    mark, additions = capture.begin(one)
    other = capture.owner("other")
    other.launch()
    with pytest.raises(StaleEpochError):
        capture.targets().commit(additions, mark, THREE)
    with pytest.raises(StaleEpochError):
        one._finish(mark.batch, THREE, ["t"])
    assert capture.store.position(TASK) == Position()
    assert capture.topic.describe().rows == 0


def test_a_host_of_the_same_lease_whose_batch_was_given_up_is_told_too(
    capture: Capture,
) -> None:
    one = capture.owner("one")
    mark, additions = capture.begin(one)
    one.launch()  # another host of this worker
    with pytest.raises(StaleEpochError):
        capture.targets().commit(additions, mark, THREE)


@pytest.mark.parametrize("topics", [1, 2])
def test_a_batch_that_its_host_committed_is_finished_by_the_next_owner(
    capture: Capture, topics: int
) -> None:
    one = capture.owner("one")
    mark, additions = capture.begin(one)
    if topics == 2:
        more = Topics(Location.of(capture.folder)).get("u")
        additions.append(Addition("u", APP, [part(more, [{"id": 9}])]))
    capture.targets().prepare(additions)
    capture.targets().commit(additions, mark, THREE)
    capture.targets().commit(additions, mark, THREE)
    other = capture.owner("other")
    other.launch()
    assert capture.store.position(TASK) == END
    assert asdict(capture.store.totals(TASK)) == asdict(THREE)
    assert capture.topic.describe().rows == 3


def test_a_number_that_the_topic_has_for_another_range_is_no_success(
    capture: Capture,
) -> None:
    """The store was set back by one batch, and the capture polls other records."""
    one = capture.owner("one")
    held = Mark(APP, 1, 1, "of other positions")
    capture.targets().commit(
        [Addition("t", APP, [part(capture.topic, [{"id": 0}])])], held, Counts(1, 1)
    )
    mark, additions = capture.begin(one)
    assert mark.batch == held.batch
    with pytest.raises(StaleEpochError, match="other records"):
        capture.targets().commit(additions, mark, THREE)
    one.launch()
    assert isinstance(one.failure, StaleEpochError)
    assert capture.store.position(TASK) == Position()


def test_a_lost_lease_ends_a_capture_that_waits_for_its_store(capture: Capture) -> None:
    task = capture.owner("one")
    task.fail(StoreUnavailableError("away"))
    task._waited = task.failure  # it has waited: the next step would start it again
    task.fail(StaleEpochError("the lease is lost"))
    with pytest.raises(StaleEpochError):
        task.step()


def test_a_batch_that_is_finished_while_its_capture_stops_is_reported(capture: Capture) -> None:
    task = capture.owner("one")
    mark, additions = capture.begin(task)
    capture.targets().commit(additions, mark, THREE)
    assert task.step().batch is None
    task._finish(mark.batch, THREE, [])
    assert [batch.counts for batch in task.unreported()] == [THREE]
    assert list(task.unreported()) == []


def test_a_lease_that_is_lost_while_a_capture_is_started_again_ends_it(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = capture.owner("one")
    task.fail(StoreUnavailableError("away"))
    task._waited = task.failure
    lost = StaleEpochError("the lease is lost")
    monkeypatch.setattr(task.keeping.hosts, "detach", lambda *_, **__: task.fail(lost))
    with pytest.raises(StaleEpochError):
        task.step()
