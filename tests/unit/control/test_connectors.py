"""What is done with connectors, over a real store."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, event

from headrace.control import Connectors
from headrace.plugins import Registry
from headrace.store import SqlConnectorStore, SqlStore

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
    with closing(SqlStore(place)) as state, closing(SqlConnectorStore(place)) as wanted:
        connectors = Connectors(
            wanted=wanted, state=state, registry=Registry(), clock=lambda: NOW
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
