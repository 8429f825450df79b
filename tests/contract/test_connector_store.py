"""What every store of connectors does, whatever it is made of."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import (
    Connector,
    ConnectorKind,
    ConnectorState,
    ConnectorStatus,
    Retention,
    Stamp,
    TargetState,
    TaskConfig,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import Position
from headrace.sdk.errors import StaleEpochError
from headrace.store import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    ConnectorStore,
    Place,
    Store,
    TaskNotFoundError,
)

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
ANN = Stamp(NOW, "ann")
RUNNING = ConnectorStatus(ConnectorState.RUNNING, "w1")
CONFIG = {"connector.class": "file", "path": "/tmp/ä'\"%s"}  # noqa: S108 - not opened


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place]
) -> Iterator[ConnectorStore]:
    made: ConnectorStore = ConnectorStore(place_of(request.param))
    yield made
    made.close()


def create(store: ConnectorStore, name: str = "orders") -> Connector:
    return store.create(name, ConnectorKind.SOURCE, CONFIG, TargetState.RUNNING, ANN)


def kinds(store: ConnectorStore) -> list[str]:
    return [event.kind for event in store.events()]


def test_what_was_created_is_there_and_listed_by_name(store: ConnectorStore) -> None:
    made = create(store, "b")
    others = [create(store, name) for name in ("Z", "a")]
    assert store.connector("b") == made
    assert made.config == CONFIG
    assert (made.version, made.target, made.restarts) == (1, TargetState.RUNNING, 0)
    assert made.status == ConnectorStatus()
    assert [each.name for each in store.connectors()] == ["Z", "a", "b"]
    assert len({made.uid, *(each.uid for each in others)}) == 3
    assert store.connector("c") is None


def test_a_name_is_taken_once(store: ConnectorStore) -> None:
    create(store)
    with pytest.raises(ConnectorExistsError, match="orders already exists"):
        create(store)
    assert kinds(store) == ["created"]


def test_of_many_that_create_a_name_at_once_one_does(store: ConnectorStore) -> None:
    barrier = threading.Barrier(6)

    def make(_: int) -> bool:
        barrier.wait()
        try:
            create(store)
        except ConnectorExistsError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(make, range(6))) == [False] * 5 + [True]


def test_configurations_are_numbered_and_all_kept(store: ConnectorStore) -> None:
    create(store)
    later = Stamp(NOW + timedelta(hours=1), "bob")
    other = {**CONFIG, "path": "b"}
    changed = store.configure("orders", ConnectorKind.SOURCE, other, later)
    again = store.configure("orders", ConnectorKind.SOURCE, other, later)
    assert (changed.version, changed.config) == (2, other)
    assert again == changed
    versions = store.versions("orders")
    assert [(v.version, v.config, v.at, v.by) for v in versions] == [
        (2, other, later.at, "bob"),
        (1, CONFIG, NOW, "ann"),
    ]
    assert kinds(store) == ["created", "configured"]
    assert store.versions("none") == []


def test_what_is_wanted_is_stored_once(store: ConnectorStore) -> None:
    create(store)
    assert store.set_target("orders", TargetState.PAUSED, ANN).target is TargetState.PAUSED
    store.set_target("orders", TargetState.PAUSED, ANN)
    assert kinds(store) == ["created", "target"]
    found = store.connector("orders")
    assert found is not None
    assert found.target is TargetState.PAUSED
    assert found.version == 1


def test_tasks_are_planned_and_keep_how_often_they_were_restarted(
    store: ConnectorStore,
) -> None:
    made = create(store)
    assert store.plan(made, {0: {"part": "0"}, 1: {"part": "1"}}, NOW)
    store.request_restart("orders", [1], ANN, connector=False)
    assert store.tasks("orders") == [
        TaskConfig(0, {"part": "0"}),
        TaskConfig(1, {"part": "1"}, 1),
    ]
    assert store.plan(made, {0: {"part": "x"}, 1: {"part": "y"}, 7: {"part": "z"}}, NOW)
    found = store.tasks("orders")
    assert [(task.number, task.restarts) for task in found] == [(0, 0), (1, 1), (7, 0)]
    create(store, "without")
    assert store.all_tasks() == {"orders": found}
    assert store.plan(made, {}, NOW)
    assert store.tasks("orders") == []


def test_a_restart_is_asked_of_all_or_of_none(store: ConnectorStore) -> None:
    made = create(store)
    store.plan(made, {0: {}}, NOW)
    with pytest.raises(TaskNotFoundError, match="no task 1"):
        store.request_restart("orders", [0, 1], ANN, connector=True)
    assert store.tasks("orders") == [TaskConfig(0, {})]
    assert store.connector("orders") == made
    assert store.request_restart("orders", [], ANN, connector=True).restarts == 1


def test_a_worker_that_is_behind_changes_nothing(store: ConnectorStore) -> None:
    old = create(store)
    new = store.configure("orders", ConnectorKind.SOURCE, {"a": "b"}, ANN)
    assert not store.plan(old, {0: {}}, NOW)
    assert not store.set_status(old, RUNNING, NOW)
    assert store.tasks("orders") == []
    assert store.set_status(new, RUNNING, NOW)
    store.delete("orders", ANN)
    create(store)
    assert not store.set_status(new, RUNNING, NOW)
    found = store.connector("orders")
    assert found is not None
    assert found.status == ConnectorStatus()


def test_how_a_connector_is_can_be_told(store: ConnectorStore) -> None:
    made = create(store)
    failed = ConnectorStatus(ConnectorState.FAILED, "w1", "no such file")
    assert store.set_status(made, failed, NOW)
    found = store.connector("orders")
    assert found is not None
    assert found.status == failed
    [_, event] = store.events()
    assert (event.kind, event.by, event.at) == ("state", "w1", NOW)
    assert event.detail == {"state": "FAILED", "trace": "no such file"}


def test_deletion_forgets_all_but_the_events(store: ConnectorStore) -> None:
    made = create(store)
    store.plan(made, {0: {}}, NOW)
    store.add_topics(made, ["t"])
    store.delete("orders", ANN)
    assert store.connector("orders") is None
    assert store.tasks("orders") == []
    assert store.topics("orders") == []
    assert store.versions("orders") == []
    assert kinds(store) == ["created", "deleted"]
    again = create(store)
    assert again.uid != made.uid
    assert again.version == 1


def test_topics_in_use_are_remembered_until_reset(store: ConnectorStore) -> None:
    made = create(store)
    store.add_topics(made, ["b", "a"])
    store.add_topics(made, ["a", "c"])
    assert store.topics("orders") == ["a", "b", "c"]
    store.reset_topics("orders")
    assert store.topics("orders") == []
    store.add_topics(replace(made, name="none"), ["a"])
    store.add_topics(replace(made, uid="another"), ["a"])
    assert store.topics("orders") == []
    store.reset_topics("none")
    assert store.topics("none") == []


def test_events_are_read_on_from_the_last_one_seen(store: ConnectorStore) -> None:
    assert store.last_event() == 0
    create(store, "a")
    seen = store.last_event()
    create(store, "b")
    store.set_target("b", TargetState.STOPPED, ANN)
    later = store.events(after=seen)
    assert [(event.connector, event.kind) for event in later] == [
        ("b", "created"),
        ("b", "target"),
    ]
    assert [event.connector for event in store.events(limit=1)] == ["a"]
    assert later[-1].id == store.last_event()


def test_what_changes_no_connector_is_an_event_too(store: ConnectorStore) -> None:
    store.add_event("backup", ANN, {"file": "x"})
    store.add_event("discarded", ANN, {"letters": 2}, "gone")
    server, gone = store.events()
    assert (server.connector, server.kind, server.task) == ("", "backup", None)
    assert (server.by, dict(server.detail)) == (ANN.by, {"file": "x"})
    assert store.events(connector="gone") == [gone]
    assert store.connectors() == []


def test_a_change_of_what_is_there_no_more_is_refused(store: ConnectorStore) -> None:
    seen = create(store)
    kind, changed = ConnectorKind.SOURCE, {**CONFIG, "a": "1"}
    store.configure("orders", kind, changed, ANN, seen)
    with pytest.raises(ConnectorChangedError, match="orders was changed"):
        store.configure("orders", kind, CONFIG, ANN, seen)
    task = TaskId("orders", 0)
    there = {task: Position([({"file": "a"}, {"position": 1})])}
    store.set_positions("orders", there, ANN, "alter", {})
    store.set_positions("orders", there, ANN, "alter", there)
    with pytest.raises(ConnectorChangedError):
        store.set_positions("orders", {task: Position()}, ANN, "reset", {})
    store.delete("orders", ANN)
    create(store)
    with pytest.raises(ConnectorChangedError):
        store.configure("orders", kind, changed, ANN, seen)


def test_events_are_chosen_by_their_kinds(store: ConnectorStore) -> None:
    made = create(store)
    store.set_status(made, RUNNING, NOW)
    store.set_target("orders", TargetState.STOPPED, ANN)
    create(store, "other")

    def chosen(*kinds: str, connector: str | None = None) -> list[str]:
        return [each.kind for each in store.events(0, 9, connector, kinds)]

    assert chosen("created", "target") == ["created", "target", "created"]
    assert chosen("created", "target", connector="orders") == ["created", "target"]
    assert chosen("'", "state") == ["state"]
    assert chosen() == []


def test_old_states_are_forgotten_and_changes_by_people_are_not(store: ConnectorStore) -> None:
    made = create(store)
    day = timedelta(days=1)
    for number in range(4):
        store.set_status(made, RUNNING, NOW + number * day)
    store.set_target("orders", TargetState.PAUSED, Stamp(NOW + 4 * day, "ann"))
    keep = Retention(states_age=2 * day, states_count=9, changes_age=30 * day)
    assert store.prune(keep, NOW + 4 * day) == 2
    assert kinds(store) == ["created", "state", "state", "target"]
    assert store.prune(replace(keep, states_count=1), NOW + 4 * day) == 1
    last = store.last_event()
    assert store.prune(keep, NOW + 300 * day) == 2
    assert [event.id for event in store.events()] == [last] == [store.last_event()]
    store.set_target("orders", TargetState.RUNNING, ANN)
    assert store.last_event() == last + 1


def test_changes_are_never_kept_shorter_than_states(store: ConnectorStore) -> None:
    create(store)
    store.set_target("orders", TargetState.PAUSED, ANN)
    keep = Retention(states_age=timedelta(days=9), changes_age=timedelta(days=1))
    assert store.prune(keep, NOW + timedelta(days=8)) == 0


def test_what_is_to_go_on_is_not_at_rest_any_more(store: ConnectorStore) -> None:
    made = create(store)
    stopped = store.set_target("orders", TargetState.STOPPED, ANN)
    assert store.set_status(stopped, ConnectorStatus(ConnectorState.STOPPED, "w1"), NOW)
    store.set_target("orders", TargetState.PAUSED, ANN)
    [still] = store.connectors()
    assert still.status.state is ConnectorState.STOPPED
    store.set_target("orders", TargetState.RUNNING, ANN)
    [asked] = store.connectors()
    assert (asked.name, asked.status.state) == (made.name, ConnectorState.UNASSIGNED)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_the_states_of_tasks_are_told_as_they_change(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    data: Store = Store(place)
    wanted: ConnectorStore = ConnectorStore(place)
    create(wanted)
    task, second = TaskId("orders", 3), timedelta(seconds=1)
    running = TaskStatus(TaskState.RUNNING)
    data.lease(task, "w1", NOW, second, running)
    lease = data.lease(task, "w1", NOW, second, running)  # tried twice, and told once
    data.end(lease, TaskStatus(TaskState.FAILED, "why"), NOW + second)
    lease = data.lease(task, "w2", NOW + second, second, running)
    data.fence(lease, TaskStatus(TaskState.PAUSED), NOW + 2 * second)
    [_, *told] = wanted.events()
    assert [(event.task, event.kind, event.by, event.at) for event in told] == [
        (3, "state", by, NOW + n * second)
        for by, n in [("w1", 0), ("w1", 1), ("w2", 1), ("w2", 2)]
    ]
    assert [event.detail for event in told] == [
        {"state": "RUNNING", "trace": None},
        {"state": "FAILED", "trace": "why"},
        {"state": "RUNNING", "trace": None},
        {"state": "PAUSED", "trace": None},
    ]
    wanted.close()
    data.close()


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.configure("x", ConnectorKind.SINK, {}, ANN),
        lambda store: store.set_target("x", TargetState.PAUSED, ANN),
        lambda store: store.request_restart("x", [], ANN, connector=True),
        lambda store: store.delete("x", ANN),
    ],
    ids=["configure", "aim", "restart", "delete"],
)
def test_what_is_not_there_cannot_be_changed(
    store: ConnectorStore, act: Callable[[ConnectorStore], object]
) -> None:
    with pytest.raises(ConnectorNotFoundError, match="no connector x"):
        act(store)
    assert kinds(store) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_a_deletion_and_a_lease_at_once_nothing_is_left(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    wanted, data = ConnectorStore(place), Store(place)
    for number in range(10):
        made, barrier = create(wanted), threading.Barrier(2)

        def take(uid: str, together: threading.Barrier) -> None:
            together.wait()
            with suppress(StaleEpochError):
                data.lease(TaskId("orders", 0), "w1", NOW, timedelta(seconds=1), identity=uid)

        taker = threading.Thread(target=take, args=(made.uid, barrier))
        taker.start()
        barrier.wait()
        wanted.delete("orders", ANN)
        taker.join()
        assert data.statuses("orders") == {}, number
    wanted.close()
    data.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_deletion_stops_whoever_runs_the_tasks(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    wanted, data = ConnectorStore(place), Store(place)
    made = create(wanted)
    assert data.register("orders") == made.uid
    lease = data.lease(TaskId("orders", 0), "w1", NOW, timedelta(seconds=30))
    wanted.delete("orders", ANN)
    with pytest.raises(StaleEpochError):
        data.ledger_append(lease.task, lease.epoch, [{"path": "a"}])
    create(wanted)
    assert data.lease(lease.task, "w2", NOW, timedelta(seconds=30)).epoch > lease.epoch
    wanted.close()
    data.close()
