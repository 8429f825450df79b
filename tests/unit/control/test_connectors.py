"""What is done with connectors, over a real store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from structlog.testing import capture_logs
from typing_extensions import override

from headrace.control import ConfigVersions, Connectors, Offset, Offsets
from headrace.model import (
    ConfigVersion,
    Connector,
    ConnectorState,
    ConnectorStatus,
    Stamp,
    TargetState,
    TaskId,
)
from headrace.plugins import Registry
from headrace.sdk import Position
from headrace.store import (
    ConnectorNotFoundError,
    ConnectorStore,
    Store,
)

CONFIG = {"connector.class": "FileStreamSource", "file": "/in", "topic": "lines"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def statements() -> Iterator[list[str]]:
    """Give the statements that any database is asked within this block."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_list_asks_the_store_as_often_for_many_as_for_one(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    with closing(Store(place)) as state, closing(ConnectorStore(place)) as wanted:
        connectors = Connectors(
            store=wanted, task_store=state, registry=Registry(), clock=lambda: NOW
        )
        counts = set()
        for name in ("a", "b", "c"):
            made = connectors.create(name, CONFIG, "ann")
            wanted.plan(made, {0: {"part": "0"}, 1: {"part": "1"}}, NOW)
            with statements() as asked:
                connectors.views()
            counts.add(len(asked))
        assert len(counts) == 1
        views = connectors.views()
        assert [view.connector.name for view in views] == ["a", "b", "c"]
        assert [task.number for task in views[0].tasks] == [0, 1]
        assert views[1] == connectors.view("b")


class Crowded(ConnectorStore):
    """A store that somebody else changes as soon as it has been looked into."""

    def __init__(self) -> None:
        self.state = Store()
        super().__init__(self.state.database)
        self.meanwhile: list[Callable[[], object]] = []

    @override
    def connector(self, name: str) -> Connector | None:
        found = super().connector(name)
        while self.meanwhile:
            self.meanwhile.pop()()
        return found

    def interfering(self) -> tuple[Connectors, Connectors]:
        """Return the connectors as one request sees them, and as the other does."""
        made = [
            Connectors(
                store=self, task_store=self.state, registry=Registry(), clock=lambda: NOW
            )
            for _ in range(2)
        ]
        return made[0], made[1]


def test_keys_that_two_change_at_once_are_both_changed() -> None:
    store = Crowded()
    mine, other = store.interfering()
    mine.create("c", CONFIG, "ann")
    store.meanwhile = [lambda: other.patch("c", {"file": "/else"}, "bob")]
    mine.patch("c", {"topic": "more"}, "ann")
    config = mine.get("c").config
    assert (config["file"], config["topic"]) == ("/else", "more")
    assert mine.get("c").version == 3


def test_a_key_that_nothing_knows_is_told_in_the_log() -> None:
    connectors, _ = Crowded().interfering()
    with capture_logs() as told:
        connectors.create("c", {**CONFIG, "fille": "/typo"}, "ann")
    [warning] = told
    assert (warning["connector"], warning["key"]) == ("c", "fille")
    assert "Did you mean file" in warning["fix"]


def test_a_configuration_is_given_to_what_is_made_or_deleted_meanwhile() -> None:
    store = Crowded()
    mine, other = store.interfering()
    store.meanwhile = [lambda: other.create("c", CONFIG, "bob")]
    found, made = mine.configure("c", {**CONFIG, "file": "/mine"}, "ann")
    assert (found.config["file"], made) == ("/mine", False)
    store.meanwhile = [lambda: other.delete("c", "bob")]
    _, made = mine.configure("c", CONFIG, "ann")
    assert made


def test_offsets_that_two_alter_at_once_are_both_altered() -> None:
    class Slow(Crowded):
        @override
        def set_positions(
            self, name: str, positions: Mapping[TaskId, Position], *more: Any, **given: Any
        ) -> None:
            while self.meanwhile:
                self.meanwhile.pop()()
            super().set_positions(name, positions, *more, **given)

    store = Slow()
    mine, other = (Offsets(each) for each in store.interfering())
    mine.connectors.create("c", CONFIG, "ann", TargetState.STOPPED)
    found = mine.connectors.get("c")
    store.set_status(found, ConnectorStatus(ConnectorState.STOPPED), NOW)
    first, second = (Offset({"filename": f}, {"position": 1}) for f in ("/a", "/b"))
    store.meanwhile = [lambda: other.alter("c", [second], "bob")]
    [change] = mine.alter("c", [first], "ann")
    assert change.partition == first.partition
    assert mine.view("c") == [first, second]


def test_the_versions_of_what_is_deleted_meanwhile_are_not_there() -> None:
    class Slow(Crowded):
        @override
        def versions(self, name: str) -> Sequence[ConfigVersion]:
            self.delete(name, Stamp(NOW, "bob"))
            return super().versions(name)

    connectors, _ = Slow().interfering()
    connectors.create("c", CONFIG, "ann")
    with pytest.raises(ConnectorNotFoundError):
        ConfigVersions(connectors).get("c", 1)


def test_what_a_deleted_connector_leaves_is_told_by_the_references_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot, server = "a_slot_of_ours", "postgresql://127.0.0.1:1/db"
    monkeypatch.setenv("TESTS_SLOT", slot)
    monkeypatch.setenv("TESTS_SERVER", server)
    config = {"connector.class": "postgres", "connection.url": "${env:TESTS_SERVER}"}
    config |= {"topic": "t", "slot.name": "${env:TESTS_SLOT}"}
    with closing(Store()) as store:
        connectors = Connectors(
            store=ConnectorStore(store.database),
            task_store=store,
            registry=Registry(),
            clock=lambda: NOW,
        )
        for name in ("a", "b"):
            connectors.create(name, config, "ann", TargetState.STOPPED)
        first, second = connectors.delete("a", "ann")
        monkeypatch.delenv("TESTS_SLOT")
        with capture_logs() as told:
            assert connectors.delete("b", "ann") == ()
    assert "pg_drop_replication_slot('${env:TESTS_SLOT}')" in first
    assert "${env:TESTS_SERVER}" in second
    assert slot not in f"{first}{second}"
    assert server not in f"{first}{second}"
    [warning] = told
    assert warning["log_level"] == "warning"
    assert "TESTS_SLOT" in warning["why"]
