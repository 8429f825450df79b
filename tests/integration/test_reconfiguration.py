"""Connectors that get new tasks while their others run on, on a real server."""

import threading
from pathlib import Path

import pytest
from tests.integration import tables_source
from tests.waiting import until

from headrace.control import Connectors
from headrace.plugins import Registry
from headrace.runtime.app import Runtime
from headrace.worker.events import LoggedEvents

TABLES = f"{tables_source.__name__}.Tables"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
pytestmark = pytest.mark.timeout(240)


def watches() -> int:
    return sum(thread.name == "tables-watch" for thread in threading.enumerate())


class Bench:
    """Two connectors on a server: of tables into topics, and of all topics into a file."""

    def __init__(self, runtime: Runtime, connectors: Connectors, folder: Path) -> None:
        self.runtime, self.connectors, self.folder = runtime, connectors, folder

    def source(self, name: str) -> None:
        tables = self.folder / name
        tables.mkdir()
        (tables / "a").touch()
        config = {"connector.class": TABLES, "folder": str(tables), "topic": f"of-{name}"}
        self.connectors.create(name, config, "ann")

    def epochs(self, name: str) -> dict[int, int]:
        """Return the leases of a connector's tasks: a task that runs on keeps its epoch."""
        return {each.task.number: each.epoch for each in self.runtime.state.leases(name)}

    def runs(self, name: str, epochs: dict[int, int]) -> None:
        until(lambda: self.epochs(name) == epochs, lambda: self.connectors.view(name))

    def has(self, *tables: str) -> None:
        out = self.folder / "out"
        rows = sorted(f"{table} {n}" for table in tables for n in range(tables_source.ROWS))

        def found() -> list[str]:
            return sorted(out.read_text().splitlines()) if out.exists() else []

        until(lambda: found() == rows, lambda: (found(), self.connectors.view("sink")))


def test_new_tables_and_new_topics_get_tasks_and_the_others_run_on(
    runtime: Runtime, tmp_path: Path
) -> None:
    with runtime.server(LoggedEvents()) as connectors:
        bench = Bench(runtime, connectors, tmp_path)
        config = {"connector.class": SINK, "topics.regex": "of-.*", "file": f"{tmp_path}/out"}
        connectors.create("sink", config, "ann")
        until(lambda: connectors.view("sink").status.worker, lambda: connectors.view("sink"))
        assert connectors.view("sink").status.state == "RUNNING"
        bench.source("one")
        bench.has("a")
        bench.runs("one", {0: 1})
        bench.runs("sink", {0: 1})
        (tmp_path / "one" / "b").touch()
        bench.has("a", "b")
        bench.runs("one", {0: 1, 1: 1})
        bench.source("two")
        bench.has("a", "a", "b")
        bench.runs("sink", {0: 1, 1: 1})
        bench.runs("one", {0: 1, 1: 1})
        assert [task.config["table"] for task in connectors.tasks("one")] == ["a", "b"]
        (tmp_path / "two" / "broken").touch()
        until(
            lambda: connectors.view("two").status.state == "FAILED",
            lambda: connectors.view("two"),
        )
        assert "the folder is broken" in str(connectors.view("two").status.trace)
        bench.runs("two", {0: 1})
    assert watches() == 0
    # Neither its new plans nor its tasks started a connector of their own.
    started = [f"{tmp_path}/one", f"{tmp_path}/two"]
    assert [each for each in tables_source.Tables.starts if each in started] == started


def test_a_server_loads_its_plugins_before_anybody_asks_for_them(runtime: Runtime) -> None:
    class Asked(Registry):
        warmed = threading.Event()

        def warm(self) -> None:
            self.warmed.set()

    runtime.registry = Asked()
    with runtime.server(LoggedEvents()):
        assert Asked.warmed.wait(30)
