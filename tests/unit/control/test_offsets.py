"""Offsets are changed safely: checked, recorded, undone, and never behind anybody's back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.topics.made_topics import START, part
from tests.unit.worker.scripts import now

from headrace.control import (
    Connectors,
    Offset,
    OffsetChange,
    OffsetEffect,
    Offsets,
    input_positions,
)
from headrace.control.config_infos import configured_plugin
from headrace.model import ConnectorState, ConnectorStatus, Counts, TargetState, TaskId
from headrace.plugins import Registry
from headrace.sdk import ConfigError, Mark, Position, Schema, StateError
from headrace.sdk.location import Location
from headrace.store import ConnectorStore, Store
from headrace.topics import TopicPlaces, Topics, parse_start

FILES = {"connector.class": "FileStreamSource", "file": "/in", "topic": "t"}
ROWS = Schema.struct({"id": Schema.int64(optional=True)})
FILE = {"filename": "/in"}
PATHS = st.sampled_from(["/a", "/b"])


class Bench:
    """Connectors over stores in memory, none of which runs."""

    def __init__(self, topics: Path | None = None) -> None:
        self.state = Store()
        self.wanted = ConnectorStore(self.state.database)
        self.registry = Registry()
        self.connectors = Connectors(
            store=self.wanted,
            task_store=self.state,
            registry=self.registry,
            clock=lambda: now() + timedelta(days=1),  # after all that was appended
            places=None if topics is None else TopicPlaces(Topics(Location.of(topics))),
        )
        self.offsets = Offsets(self.connectors)

    def make(self, config: dict[str, str], name: str = "c") -> None:
        self.connectors.create(name, config, "ann", TargetState.STOPPED)
        self.stopped(name)

    def stopped(self, name: str = "c") -> None:
        self.connectors.set_target(name, TargetState.STOPPED, "ann")
        found = self.connectors.get(name)
        self.wanted.set_status(found, ConnectorStatus(ConnectorState.STOPPED), now())

    def run(self, position: Position, name: str = "c") -> None:
        """Move as a task would that runs for a while."""
        task = TaskId(name, 0)
        lease = self.state.lease(task, "w", now(), timedelta(seconds=60))
        self.state.set_position(task, lease.epoch, position)
        self.state.release(lease)


def at(path: str, place: int) -> Offset:
    return Offset({"filename": path}, {"position": place})


class OffsetsMachine(RuleBasedStateMachine):
    """Changes of all kinds, with runs in between, against plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.bench.make(FILES)
        self.stands: dict[str, int] = {}
        self.changes: list[tuple[dict[str, int], dict[str, int]]] = []

    def changed(self, after: dict[str, int], shown: list[OffsetChange]) -> None:
        both = self.stands | after
        differing = {p for p in both if self.stands.get(p) != after.get(p)}
        assert {change.partition["filename"] for change in shown} == differing
        self.changes.append((self.stands, after))
        self.stands = after

    @rule(path=PATHS, place=st.none() | st.integers(0, 9))
    def alter(self, path: str, place: int | None) -> None:
        offset = Offset({"filename": path}, None if place is None else {"position": place})
        after = {p: each for p, each in self.stands.items() if p != path}
        if place is not None:
            after[path] = place
        self.changed(after, self.bench.offsets.alter("c", [offset], "bob"))

    @rule(place=st.sampled_from([-1, "9", None, 1.5]))
    def refuse(self, place: object) -> None:
        with pytest.raises(ConfigError):
            self.bench.offsets.alter(
                "c", [Offset({"filename": "/a"}, {"position": place})], "x"
            )

    @precondition(lambda self: self.changes)
    @rule()
    def reset(self) -> None:
        self.changed({}, self.bench.offsets.reset("c", "bob"))

    @rule(path=PATHS, more=st.integers(1, 3))
    def run(self, path: str, more: int) -> None:
        self.stands = {**self.stands, path: self.stands.get(path, 0) + more}
        pairs = [({"filename": p}, {"position": n}) for p, n in self.stands.items()]
        self.bench.run(Position(pairs))

    @rule(force=st.booleans())
    def undo(self, *, force: bool) -> None:
        moved = self.changes and self.changes[-1][1] != self.stands
        if not self.changes or (moved and not force):
            with pytest.raises(StateError) as refused:
                self.bench.offsets.undo("c", "bob", force=force)
            assert ("has moved data" in refused.value.problem) == bool(moved)
        else:
            before = self.changes[-1][0]
            self.changed(before, self.bench.offsets.undo("c", "bob", force=force))

    @rule()
    def remake(self) -> None:
        self.bench.connectors.delete("c", "ann")
        self.bench.make(FILES)
        self.stands, self.changes = {}, []

    @invariant()
    def everything_is_as_told(self) -> None:
        shown = self.bench.offsets.view("c")
        stands = {each.partition["filename"]: each.offset for each in shown}
        assert stands == {path: {"position": place} for path, place in self.stands.items()}
        history = self.bench.offsets.history("c")
        assert len(history) == len(self.changes)
        assert {each.by for each in history} <= {"bob"}


OffsetsMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=15, deadline=None
)
TestOffsets = OffsetsMachine.TestCase


def test_offsets_are_checked_by_what_references_lead_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTS_MODE", "bulk")
    monkeypatch.setenv("TESTS_PASSWORD", "secret word")
    (tmp_path / "db").touch()
    config = {
        "connector.class": "jdbc",
        "connection.url": f"sqlite:{tmp_path}/db",
        "topic": "t",
    }
    config |= {"mode": "${env:TESTS_MODE}", "connection.password": "${env:TESTS_PASSWORD}"}
    bench = Bench()
    bench.make(config)
    bench.offsets.alter("c", [Offset({"table": "t"}, {"round": 1})], "bob")
    stored = bench.wanted.connector("c")
    assert stored is not None
    _, found = configured_plugin(stored, bench.registry)
    assert found["connection.password"].value == "secret word"
    assert bench.registry.references.secrets.redacted("a secret word") == "a [hidden]"
    monkeypatch.delenv("TESTS_MODE")
    with pytest.raises(ConfigError, match="has no value"):
        bench.offsets.alter("c", [Offset({"table": "t"}, {"round": 0})], "bob")


def test_an_undo_of_a_change_of_nothing_sees_what_has_moved_since() -> None:
    bench = Bench()
    bench.make(FILES)
    assert bench.offsets.alter("c", [Offset({"filename": "/a"}, None)], "bob") == []
    bench.run(Position([({"filename": "/a"}, {"position": 1})]))
    with pytest.raises(StateError, match="has moved data"):
        bench.offsets.undo("c", "bob")
    bench.offsets.undo("c", "bob", force=True)
    assert bench.offsets.view("c") == []


def test_nothing_is_changed_while_a_connector_may_run() -> None:
    bench = Bench()
    bench.make(FILES)
    bench.connectors.set_target("c", TargetState.RUNNING, "ann")
    for change in (
        lambda: bench.offsets.alter("c", [at("/a", 1)], "x"),
        lambda: bench.offsets.reset("c", "x"),
        lambda: bench.offsets.rewind("c", now(), "x"),
        lambda: bench.offsets.undo("c", "x", force=True),
    ):
        with pytest.raises(StateError, match="must be in the STOPPED state"):
            change()
    assert bench.offsets.history("c") == []


def test_an_undo_tells_what_it_would_double() -> None:
    bench = Bench()
    bench.make(FILES)
    bench.offsets.alter("c", [at("/a", 5)], "x")
    bench.run(Position.of({"filename": "/a"}, {"position": 9}))
    with pytest.raises(StateError) as refused:
        bench.offsets.undo("c", "x")
    assert "between position 9 and the beginning of filename /a" in refused.value.problem
    assert "read again, and duplicated" in refused.value.problem
    [change] = bench.offsets.undo("c", "x", force=True)
    assert change.effect is OffsetEffect.REPEATED
    assert [each.action for each in bench.offsets.history("c")] == ["undo", "alter"]


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"n": 5}, {"n": 3}, OffsetEffect.REPEATED),
        ({"n": 5}, {"n": 7}, OffsetEffect.SKIPPED),
        ({"n": 5}, None, OffsetEffect.REPEATED),
        (None, {"n": 5}, OffsetEffect.SKIPPED),
        ({"n": 5, "file": 1}, {"n": 3, "file": 2}, OffsetEffect.UNKNOWN),
        ({"lsn": "0/A"}, {"lsn": "0/B"}, OffsetEffect.UNKNOWN),
    ],
)
def test_what_a_change_does_to_data_is_told(
    before: dict[str, object] | None, after: dict[str, object] | None, effect: OffsetEffect
) -> None:
    assert OffsetChange({"p": 1}, before, after).effect is effect


@pytest.fixture
def sink(tmp_path: Path) -> Bench:
    """Return a stopped sink that has read the three versions of a topic, an hour apart."""
    topic = Topics(Location.of(tmp_path)).get("t")
    for batch in range(1, 4):
        then = START + timedelta(hours=batch)
        topic.append([part(topic, [{"id": batch}], ROWS)], Mark("a", batch, 1), "", then)
    bench = Bench(tmp_path)
    bench.make({"connector.class": "FileStreamSink", "file": "/out", "topics": "t"})
    bench.run(parse_start(topic, "latest"))
    return bench


def kafka(offset: object, topic: str = "t", partition: object = 0) -> Offset:
    place = {"kafka_topic": topic, "kafka_partition": partition}
    return Offset(place, {"kafka_offset": offset})


def test_a_sink_stands_only_where_its_topic_is(sink: Bench, tmp_path: Path) -> None:
    newest = Topics(Location.of(tmp_path)).get("t").log.newest()
    assert sink.offsets.view("c") == [kafka(newest + 1)]
    for wrong in (kafka(newest + 2), kafka(-1), kafka(0, "other"), kafka(0, partition=1)):
        with pytest.raises(ConfigError):
            sink.offsets.alter("c", [wrong], "x")
    assert sink.offsets.view("c") == [kafka(newest + 1)]
    [change] = sink.offsets.alter("c", [kafka(1)], "x")
    assert change.effect is OffsetEffect.REPEATED


def test_a_sink_goes_back_to_a_time(sink: Bench, tmp_path: Path) -> None:
    log = Topics(Location.of(tmp_path)).get("t").log
    last = log.commit(log.newest()).time
    sink.offsets.rewind("c", last, "x")
    assert sink.offsets.view("c") == [kafka(log.newest())]
    sink.offsets.rewind("c", datetime(2000, 1, 1, tzinfo=UTC), "x")
    [begun] = sink.offsets.view("c")
    assert begun.offset is not None
    assert begun.offset["kafka_offset"] <= 1


def test_a_sink_never_goes_forward_to_a_time(sink: Bench, tmp_path: Path) -> None:
    sink.offsets.alter("c", [kafka(1)], "x")
    assert sink.offsets.rewind("c", now() + timedelta(hours=20), "x") == []
    assert sink.offsets.view("c") == [kafka(1)]


def test_a_source_goes_back_to_rows_of_a_time_if_it_can_tell() -> None:
    bench = Bench()
    bench.make({"connector.class": "datagen"})
    bench.run(Position.of({"generator": "c"}, {"row": 90_000}))
    bench.offsets.rewind("c", datetime(2025, 1, 1, 0, 1, tzinfo=UTC), "x")
    assert bench.offsets.view("c") == [Offset({"generator": "c"}, {"row": 60_000})]


def run_batches(
    bench: Bench, *places: int, task: int = 0, partition: dict[str, str] = FILE
) -> datetime:
    """Run a batch up to each place, an hour apart; return when the first began."""
    first = now() - timedelta(hours=100)
    id_ = TaskId("c", task)
    lease = bench.state.lease(id_, "w", now(), timedelta(seconds=60))
    for number, place in enumerate(places):
        begun = first + timedelta(hours=number)
        start, end = bench.state.position(id_), Position.of(partition, {"position": place})
        batch = bench.state.begin_batch(id_, lease.epoch, start, end, begun)
        finished = begun + timedelta(minutes=10)
        bench.state.finish_batch(id_, lease.epoch, batch.id, Counts(), finished)
    bench.state.release(lease)
    return first


@pytest.mark.parametrize(
    ("minutes", "place"), [(-1, None), (9, None), (10, 3), (60, 3), (130, 7), (250, 9)]
)
def test_a_source_that_cannot_tell_goes_back_to_where_it_stood(
    minutes: int, place: int | None
) -> None:
    bench = Bench()
    bench.make(FILES)
    first = run_batches(bench, 3, 5, 7, 9)
    bench.offsets.rewind("c", first + timedelta(minutes=minutes), "x")
    assert [each.offset for each in bench.offsets.view("c")] == (
        [] if place is None else [{"position": place}]
    )


def test_a_source_does_not_go_forward_to_a_time_after_its_offsets_were_altered() -> None:
    bench = Bench()
    bench.make(FILES)
    run_batches(bench, 3, 5)
    bench.offsets.alter("c", [Offset(FILE, {"position": 1})], "x")
    altered = bench.offsets.history("c")[0].at
    assert bench.offsets.rewind("c", altered, "x") == []
    [change] = bench.offsets.rewind("c", altered - timedelta(seconds=1), "x")
    assert bench.offsets.view("c") == [Offset(FILE, {"position": 5})]
    assert change.effect is OffsetEffect.SKIPPED


def test_what_is_behind_a_capture_stays_where_it_is() -> None:
    bench = Bench()
    bench.make(FILES)
    first = run_batches(bench, 3, 5)
    chain = TaskId("c", 1)
    lease = bench.state.lease(chain, "w", now(), timedelta(seconds=60))
    behind = Position.of({"topic": "c.capture"}, {"version": 4})
    bench.state.set_position(chain, lease.epoch, behind)
    bench.state.release(lease)
    bench.offsets.rewind("c", first + timedelta(minutes=30), "x")
    assert bench.offsets.view("c") == [Offset(FILE, {"position": 3})]
    bench.offsets.reset("c", "x")
    assert bench.offsets.view("c") == []
    assert bench.state.position(chain) == behind


def test_each_task_goes_back_to_where_it_stood_itself() -> None:
    bench = Bench()
    bench.make(FILES)
    first = run_batches(bench, 3, 5)
    other = {"filename": "/other"}
    run_batches(bench, 10, 20, task=1, partition=other)
    changes = bench.offsets.rewind("c", first + timedelta(minutes=30), "x")
    assert [each.effect for each in changes] == [OffsetEffect.REPEATED] * 2
    view = {str(each.partition["filename"]): each.offset for each in bench.offsets.view("c")}
    assert view == {"/in": {"position": 3}, "/other": {"position": 10}}


def test_a_source_does_not_go_back_further_than_is_known(monkeypatch) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 1)
    monkeypatch.setattr("headrace.store.rows.HOURLY", timedelta(hours=2))
    bench = Bench()
    bench.make(FILES)
    first = run_batches(bench, 3, 5, 7, 9, 11)
    with pytest.raises(ConfigError, match=r"unknown at .*, only since"):
        bench.offsets.rewind("c", first, "x")
    bench.offsets.rewind("c", first + timedelta(hours=3), "x")
    assert bench.offsets.view("c") == [Offset(FILE, {"position": 7})]


def test_nothing_goes_back_to_a_time_that_is_to_come(sink: Bench) -> None:
    before = sink.offsets.view("c")
    with pytest.raises(ConfigError, match="is in the future"):
        sink.offsets.rewind("c", now() + timedelta(days=2), "x")
    assert sink.offsets.view("c") == before
    assert [each.action for each in sink.offsets.history("c")] == []


def test_only_tasks_that_read_the_input_can_be_moved() -> None:
    positions = {
        TaskId("c", 0): Position.of({"path": "in"}, {"count": 1}),
        TaskId("c", 1): Position.of({"topic": "c.capture"}, {"version": 3}),
        TaskId("c", -1): Position.of({"replays": "c.dlq"}, {"claim": 2}),
    }
    assert [task.number for task in input_positions("c", positions)] == [0]
