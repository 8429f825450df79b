"""Commands that look after a server from afar: counts, schemas, letters, backups, health."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from tests.contract.commands import Commands
from tests.contract.connect_server import Server
from tests.contract.v1_client import V1

from headrace.cli import main
from headrace.model import Counts
from headrace.sdk import Position, Schema

pytestmark = pytest.mark.timeout(120)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def served(served_v1: V1) -> Server:
    return served_v1.server


def rows(told: str) -> list[list[str]]:
    """Return the words of a table's lines, without its heading."""
    return [line.split() for line in told.splitlines()[2:]]


def test_a_server_says_that_it_is_healthy(terminal: Commands) -> None:
    assert terminal("health").endswith(" is healthy\n")
    assert terminal.json("health").keys() >= {"server", "version", "status", "message"}
    terminal("health", "--server", "http://127.0.0.1:1", code=3)


def test_the_store_is_backed_up_and_the_copies_are_listed(terminal: Commands) -> None:
    terminal("backup", "list")
    assert terminal.err == "no backups\n"
    made = terminal.json("backup", "create")
    assert Path(made["file"]).is_file()
    assert terminal.json("backup", "list") == [made]
    assert terminal("backup", "create").rstrip().endswith("B")
    listed = terminal("backup", "list").splitlines()
    assert [len(listed), listed[1].split()[-1]] == [2, made["file"]]


def test_records_are_counted_by_task_and_by_batch(terminal: Commands) -> None:
    terminal("connector", "counts")
    assert terminal.err == "no task has ever run\n"
    terminal.server.create("a")
    terminal("connector", "batches", "a")
    assert terminal.err == "a-0 has no batches yet\n"
    state = terminal.server.state_store
    [lease] = state.leases("a")
    end = Position.of({"file": "a"}, {"line": 6})
    batch = state.begin_batch(lease.task, lease.epoch, Position(), end, NOW)
    assert "runs" in terminal("connector", "batches", "a").split()
    counts = Counts(
        read=6, written=3, filtered=2, rejected=1, filters={"f": 2}, causes={"E": 1}
    )
    done = NOW + timedelta(seconds=3)
    state.finish_batch(lease.task, lease.epoch, batch.id, counts, done)
    assert rows(terminal("connector", "counts")) == [["a-0", "6", "3", "2", "1", "yes"]]
    assert terminal.json("connector", "counts", "a")[0]["total"]["causes"] == {"E": 1}
    [later] = terminal.json("connector", "counts", "a*", "--since", "2026-01-02T00:00Z")
    assert later["total"]["read"] == 0
    [shown] = rows(terminal("connector", "batches", "a"))
    assert shown == [
        "1",
        "2026-01-01",
        "00:00:00",
        "3.0",
        "s",
        "6",
        "3",
        "2",
        "1",
        "file=a:",
        "line=6",
    ]
    assert terminal.json("connector", "batches", "a")[0]["counts"]["written"] == 3
    terminal("connector", "counts", "--since", "noon", code=2)
    assert "] --since: Invalid time 'noon'.\n  fix: " in terminal.err
    terminal("connector", "batches", "b", code=2)
    assert "name: There is no connector 'b'." in terminal.err


def test_schemas_of_a_connector_and_of_a_topic_are_shown(terminal: Commands) -> None:
    terminal.server.create("a")
    terminal("connector", "schemas", "a")
    assert terminal.err == "a has no schemas\n"
    terminal.server.state_store.put_schema("a", "s", Schema.struct({"id": Schema.int64()}))
    assert rows(terminal("connector", "schemas", "a")) == [
        ["s", "1", "id", "long", "not", "null"]
    ]
    assert terminal.json("connector", "schemas", "a")[0]["stream"] == "s"
    terminal("connector", "schemas", "--topic", "none", code=2)
    assert "topic: There is no topic none." in terminal.err
    terminal("connector", "schemas", code=2)
    assert "NAME: Either NAME or --topic is required." in terminal.err


def test_an_earlier_configuration_is_printed(terminal: Commands) -> None:
    terminal.server.create("a")
    terminal("connector", "config", "a", "--set", "topic=other")
    assert "topic=lines" in terminal("connector", "config", "a", "--version", "1").splitlines()
    terminal("connector", "config", "a", "--version", "9", code=2)
    assert "version: Connector a has no configuration version 9.\n  fix: Use a" in terminal.err
    terminal("connector", "config", "a", "--version", "1", "--set", "topic=x", code=2)
    assert "--version: Earlier versions cannot be changed." in terminal.err


def test_a_preview_of_a_wrong_configuration_says_key_by_key_why(
    terminal: Commands, tmp_path: Path
) -> None:
    config = {"connector.class": "FileStreamSource", "file": "in", "topic": "t"}
    config |= {"transforms": "x", "transforms.x.type": "Nothing"}
    (tmp_path / "a.json").write_text(json.dumps({"name": "a", "config": config}))
    terminal("connector", "preview", "a.json", code=2)
    assert "error[config.invalid] transforms.x.type: No transform is called" in terminal.err
    assert "\n  fix: " in terminal.err
    terminal("connector", "validate", "a.json", code=2)
    assert "a: transforms.x.type: No transform is called" in terminal.err
    assert "\n  fix: " in terminal.err
    terminal("connector", "create", "a.json", code=2)
    assert "transforms.x.type: No transform is called" in terminal.err
    assert "\n  fix: " in terminal.err
    terminal("connector", "preview", "a.json", "--connector", "b", code=2)
    assert "--connector: No connector is called 'b'." in terminal.err


class Afar:
    """The commands on letters, against a server that says what it is told to."""

    def __init__(self, httpserver: HTTPServer, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.capsys = httpserver, capsys

    def answers(self, method: str, path: str, answer: Any, **asked: Any) -> None:
        request = self.server.expect_oneshot_request(f"/v1{path}", method, **asked)
        request.respond_with_json(answer)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        url = self.server.url_for("")
        done = main(["connector", "dlq", *arguments, "--server", url])
        out, err = self.capsys.readouterr()
        assert done == code, out + err
        self.server.check_assertions()
        return out + err


@pytest.fixture
def afar(httpserver: HTTPServer, capsys: pytest.CaptureFixture[str]) -> Afar:
    return Afar(httpserver, capsys)


def test_letters_are_counted_and_shown_as_they_are_chosen(afar: Afar) -> None:
    group: dict[str, Any] = {
        "topic": "d",
        "connector": "a",
        "stage": "TRANSFORMATION",
        "class": "Cast",
    }
    group |= {"exception": "DataException", "letters": 1200, "first": "t1", "last": "t2"}
    query = {"connector": "a", "since": "2026-01-01T00:00:00+00:00"}
    afar.answers("GET", "/dead-letters", [group], query_string=query)
    shown = afar("list", "--connector", "a", "--since", "2026-01-01T00:00Z")
    assert rows(shown)[0][-3:] == ["1,200", "t1", "t2"]
    afar.answers("GET", "/dead-letters", [])
    assert afar("list") == "no open letters\n"
    letter = {"id": "1", "value": "x", "key": None}
    query = {"stage": "TASK_PUT", "limit": "2", "id": "1"}
    afar.answers("GET", "/dead-letters/d", [letter], query_string=query)
    given = ("show", "d", "--stage", "TASK_PUT", "--rows", "2", "--id", "1", "--json")
    assert afar(*given) == '{"id": "1", "value": "x"}\n'


def test_letters_are_discarded_only_where_it_is_said_which(afar: Afar) -> None:
    assert "fix: Pass a filter, or --all." in afar("discard", "d", code=2)
    afar.answers("POST", "/dead-letters/d/discard", {"discarded": 3}, json={"all": True})
    assert afar("discard", "d", "--all") == "d: discarded 3\n"
    afar.answers("POST", "/dead-letters/d/discard", {"discarded": 1}, json={"id": ["1"]})
    assert afar("discard", "d", "--id", "1", "--json") == '{"discarded": 1}\n'


def test_letters_are_replayed_as_they_were_repaired(afar: Afar, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text('{"id": "1", "value": 2, "message": "bad"}\n\n')
    path, told = "/connectors/a/dead-letters/replay", {"unrepaired": 0, "unknown": 0}
    body = {"repaired": [{"id": "1", "value": 2}]}
    afar.answers("POST", path, {"records": 1, **told, "error": None}, json=body)
    shown = afar("replay", "a", "--records", str(file))
    assert shown == "a: records 1, unrepaired 0, not open 0\n"
    fault = {"code": "sink.failed", "field": None, "problem": "It is down.", "fix": "Start it."}
    afar.answers("POST", path, {"records": 1, **told, "error": fault}, json={})
    assert "] a: It is down.\n  fix: Start it.\n" in afar("replay", "a", code=1)
    for text in ("{}", "[]", '{"id": 1}', "x"):
        file.write_text(text)
        shown = afar("replay", "a", "--records", str(file), code=2)
        assert "is not a dead letter: " in shown
        assert ".\n  fix: Use the lines that dlq show --json prints" in shown
    shown = afar("replay", "a", "--records", str(tmp_path / "none"), code=2)
    assert "--records: " in shown
