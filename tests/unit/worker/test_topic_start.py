"""Where a sink begins in its topic is decided at its first start, and kept."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.topics.made_topics import append, at, ids, tend_after

from headrace.model import Batch, Counts, Definition, PluginSpec, TaskId
from headrace.plugins import Registry
from headrace.runtime.tasks import Assembler, Planner
from headrace.sdk import DataLostError, Mark, ReadLimit
from headrace.sdk.location import Location
from headrace.store import Store
from headrace.topics import Topic, TopicReader, Topics, UpkeepPolicy
from headrace.worker import BatchLoop

TASK = TaskId("sink", 0)


class SinkDownError(Exception):
    """The target cannot be reached."""


@dataclass
class Sink:
    """A sink task over a topic, of which only Spark is left out."""

    folder: Path
    start: str
    store: Store = field(default_factory=Store)
    topics: Topics = field(init=False)
    delivered: list[int] = field(default_factory=list)
    appended: int = 0

    def __post_init__(self) -> None:
        self.topics = Topics(Location.of(self.folder / "topics"))

    @property
    def topic(self) -> Topic:
        return self.topics.get("t")

    def append(self, *rows: int) -> None:
        self.appended += 1
        append(self.topic, [rows], Mark("source", self.appended, 1))

    def open(self, *, down: bool = False) -> BatchLoop:
        """Start the task as a new process does."""
        assembler = Assembler(
            store=self.store,
            topics=self.topics,
            scratch=self.folder / "scratch",
            state=self.folder / "state",
            clock=now,
            appended=lambda _: None,
        )
        planner = Planner(store=self.store, registry=Registry(), topics=self.topics)
        sink = PluginSpec("noop")
        common = {"topics.start": self.start}
        definition = Definition("sink", sinks=(sink,), topics=("t",), common=common)
        [plan] = planner.plans(definition)
        lease = self.store.lease(TASK, "worker", now(), timedelta(seconds=30))
        with ExitStack() as started:
            source = assembler.topic_source(plan, lease, [], started)
        return BatchLoop(
            store=self.store,
            lease=lease,
            reader=source,
            flow=Copy(self, down=down),
            limit=ReadLimit(),
            clock=now,
        )


@dataclass
class Copy:
    """A flow that reads what a batch says, as a topic's source does."""

    sink: Sink
    down: bool

    untouched = True
    routing = ""
    columns = None

    def run(self, batch: Batch) -> Counts:
        if self.down:
            raise SinkDownError
        found = ids(TopicReader(self.sink.topic), batch.start, batch.end)
        self.sink.delivered += found
        return Counts(read=len(found), written=len(found))


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def sink(tmp_path: Path) -> Callable[[str], Sink]:
    return lambda start: Sink(tmp_path, start)


@pytest.mark.parametrize("start", ["latest", "time:2999-01-01"])
def test_a_first_batch_that_failed_runs_again_with_the_same_rows(
    sink: Callable[[str], Sink], start: str
):
    copy = sink(start)
    copy.append(1)
    loop = copy.open(down=True)
    copy.append(2, 3)
    with pytest.raises(SinkDownError):
        loop.step()
    copy.append(4)
    loop = copy.open()
    done = loop.step()
    assert done is not None
    assert (done.id, done.counts.read) == (1, 2)
    loop.step()
    assert copy.delivered == [2, 3, 4]


def test_a_restart_before_the_first_batch_passes_over_nothing(sink: Callable[[str], Sink]):
    copy = sink("latest")
    copy.append(1)
    copy.open()
    copy.append(2)
    copy.open().step()
    assert copy.delivered == [2]


def test_a_topic_that_comes_after_its_sink_is_read_from_its_beginning(
    sink: Callable[[str], Sink],
):
    copy = sink("latest")
    copy.open()
    copy.append(1)
    copy.open().step()
    assert copy.delivered == [1]


def test_the_start_is_shown_as_where_the_task_stands(sink: Callable[[str], Sink]):
    copy = sink("latest")
    copy.append(1)
    copy.open()
    assert copy.store.position(TASK) == at(copy.topic, 1)


def test_another_configuration_does_not_move_a_task_that_has_begun(
    sink: Callable[[str], Sink],
):
    copy = sink("earliest")
    copy.append(1)
    copy.open()
    copy.start = "latest"
    copy.append(2)
    copy.open().step()
    assert copy.delivered == [1, 2]


def test_a_first_batch_whose_rows_were_removed_meanwhile_is_an_error(
    sink: Callable[[str], Sink],
):
    copy = sink("earliest")
    copy.append(1)
    loop = copy.open(down=True)
    with pytest.raises(SinkDownError):
        loop.step()
    policy = UpkeepPolicy(log_versions=0, checkpoint_versions=1)
    tend_after(copy.topics, timedelta(days=8), policy)
    with pytest.raises(DataLostError, match="Retention has removed"):
        copy.open().step()


def test_a_new_task_begins_with_the_oldest_row_that_is_left(sink: Callable[[str], Sink]):
    copy = sink("earliest")
    copy.append(1)
    policy = UpkeepPolicy(log_versions=0, checkpoint_versions=1)
    tend_after(copy.topics, timedelta(days=8), policy)
    copy.append(2)
    copy.open().step()
    assert copy.delivered == [2]
