"""Commands that speak to a server's own API, in this process, without Spark."""

import json
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from tests.contract.commands import Commands
from tests.contract.connect_server import CONFIG, SINKING, SOURCE, Server
from tests.contract.v1_client import V1

from headrace.cli import main
from headrace.client import Client

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def served(served_v1: V1) -> Server:
    return served_v1.server


def test_what_is_exported_and_applied_again_changes_nothing(terminal: Commands, v1: V1) -> None:
    odd = {**CONFIG, "file": "1e3", "topic": "yes", "tasks.max": "1", "batch.max.rows": "007"}
    terminal.server.create("a/b", **odd)
    terminal.server.create(".hidden")
    terminal("connector", "pause", ".hidden", "--wait")
    told = terminal("export", "git").splitlines()
    assert told == ["git/%2Ehidden.yaml: written", "git/a%2Fb.yaml: written"]
    assert "state: paused" in Path("git/%2Ehidden.yaml").read_text()
    assert terminal("apply", "git") == "2 unchanged\n"
    assert terminal("apply", "git", "--dry-run", "--prune") == "2 unchanged\n"
    assert terminal("export", "git").count("unchanged") == 2
    terminal("connector", "delete", "*", "--yes", "--wait")
    assert terminal.json("apply", "git", "--yes")[0] == {"name": ".hidden", "done": "created"}
    assert terminal.json("connector", "config", "a/b") == {**odd, "name": "a/b"}
    assert v1("GET", "/connectors/.hidden").json()["target"] == "PAUSED"


def test_a_plan_says_what_would_be_done_and_does_nothing(terminal: Commands, v1: V1) -> None:
    terminal.server.create("changes")
    terminal.server.create("goes")
    Path("git").mkdir()
    Path("git/new.json").write_text(json.dumps({"name": "new", "config": SINKING}))
    Path("git/changes.yaml").write_text(
        f"name: changes\nstate: stopped\nconfig:\n  connector.class: {SOURCE}\n"
        "  file: /elsewhere\n  topic: lines\n  batch.max.rows: 5\n"
    )
    plan = terminal("apply", "git", "--prune", "--dry-run", code=4).splitlines()
    assert plan[:7] == [
        "~ change changes",
        "    + batch.max.rows: 5",
        "    - file: /in",
        "    + file: /elsewhere",
        "    - (state): running",
        "    + (state): stopped",
        "+ create new",
    ]
    assert plan[-2:] == ["- delete goes", "1 to create, 1 to change, 1 to delete, 0 unchanged"]
    assert terminal.json("apply", "git", "--dry-run", code=4)["plan"][1]["action"] == "create"
    terminal("apply", "git", code=2)
    assert "there is no terminal" in terminal.err
    assert [each["name"] for each in terminal.json("connector", "list")] == ["changes", "goes"]
    done = terminal("apply", "git", "--prune", "--yes", "--wait").splitlines()
    assert {"changes: changed", "new: created", "goes: deleted"} <= set(done)
    assert v1("GET", "/connectors/changes").json()["target"] == "STOPPED"
    assert terminal("apply", "git", "--prune") == "2 unchanged\n"


def test_only_names_of_a_pattern_are_looked_at(terminal: Commands) -> None:
    terminal.server.create("theirs")
    terminal.server.create("ours-1")
    terminal("export", "git", "ours-*")
    assert [file.name for file in Path("git").iterdir()] == ["ours-1.yaml"]
    plan = terminal("apply", "git", "--prune", "--only", "ours-*", "--dry-run")
    assert plan == "1 unchanged\n"
    assert "- delete theirs" in terminal("apply", "git", "--prune", "--dry-run", code=4)


def test_nothing_is_done_while_anything_is_wrong(terminal: Commands) -> None:
    Path("git").mkdir()
    Path("git/good.json").write_text(json.dumps({"name": "good", "config": CONFIG}))
    wrong = {"name": "bad", "config": {**CONFIG, "tasks.max": "many"}}
    Path("git/bad.json").write_text(json.dumps(wrong))
    terminal("apply", "git", "--yes", code=2)
    assert "error[config.invalid] bad: tasks.max: Invalid value many" in terminal.err
    assert terminal.json("connector", "list") == []
    Path("git/again.json").write_text(json.dumps({"name": "good", "config": CONFIG}))
    terminal("apply", "git", "--yes", code=2)
    assert "'good' is also defined in git/again.json." in terminal.err
    terminal("apply", "nowhere", code=2)
    assert "nowhere does not exist." in terminal.err


def test_a_file_of_another_form_is_left_alone_by_an_export(terminal: Commands) -> None:
    Path("git").mkdir()
    own = "name: flow\nsource: {connector: datagen}\ntopic: lines\nsinks: [console]\n"
    Path("git/own.yaml").write_text(own)
    terminal("apply", "git", "--yes")
    assert terminal("export", "git").count("git/own.yaml: unchanged") == 2
    terminal("connector", "config", "flow", "--set", "batch.max.rows=5")
    assert "git/own.yaml: differs" in terminal("export", "git")
    assert Path("git/own.yaml").read_text() == own
    Path("git/old.yaml").write_text(json.dumps({"name": "old", "config": CONFIG}))
    assert "git/old.yaml: not on the server" in terminal("export", "git")
    assert "git/old.yaml: removed" in terminal("export", "git", "--prune")


def test_secrets_are_hidden_in_a_plan_and_references_are_shown() -> None:
    from headrace.cli.formats import diff_lines
    from headrace.cli.gitops import There, plan
    from headrace.control import Served

    before = There({"name": "a", "password": "old", "user": "me"}, "RUNNING")
    after = Served(name="a", config={"name": "a", "password": "new", "user": "you"})
    [change] = plan([after], {"a": before}, prune=False).changes
    shown = [line for key in change.keys({"password"}) for line in diff_lines(*key)]
    assert [line.strip() for line in shown] == [
        "- password: [hidden]",
        "+ password: [hidden]",
        "- user: me",
        "+ user: you",
    ]
    referring = Served(name="a", config={"name": "a", "password": "${env:P}", "user": "me"})
    [change] = plan([referring], {"a": before}, prune=False).changes
    assert change.keys({"password"})[0].after == "${env:P}"


def test_configurations_are_listed_compared_and_taken_back(terminal: Commands) -> None:
    terminal.server.create("a")
    terminal("connector", "rollback", "a", code=2)
    assert "has only one configuration version" in terminal.err
    terminal("connector", "config", "a", "--set", "topic=other")
    assert [each["version"] for each in terminal.json("connector", "versions", "a")] == [2, 1]
    assert "topic" in terminal("connector", "versions", "a")
    assert terminal("connector", "diff", "a") == "- topic: lines\n+ topic: other\n"
    assert terminal.json("connector", "diff", "a", "2", "1")["changes"][0]["after"] == "lines"
    assert terminal("connector", "rollback", "a") == "a: back to version 1\n"
    assert terminal("connector", "diff", "a", "1", "3") == ""
    terminal("connector", "versions", "nobody", code=2)


def test_events_say_who_did_what(terminal: Commands) -> None:
    # A name of its own: events outlive their connectors.
    terminal.server.create("told")
    terminal("connector", "pause", "told", "--wait")
    kinds = [each["kind"] for each in terminal.lines("events", "told")]
    assert kinds[0] == "created"
    assert {"target", "state"} <= set(kinds)
    assert " told created" in terminal("events", "told").splitlines()[0]
    assert len(terminal("events", "-n", "2").splitlines()) == 2
    terminal("events", "nobody", code=2)
    terminal("connector", "delete", "told", "--yes", "--wait")
    changes = terminal.lines("events", "told", "--changes")
    assert [each["kind"] for each in changes] == ["created", "target", "deleted"]
    assert [each["by"] for each in changes[1:]] == ["anonymous@127.0.0.1"] * 2


def log_of(v1: V1) -> Path:
    file = v1.home / "logs" / "headrace.log"
    file.parent.mkdir(exist_ok=True)
    return file


def line(text: str, **values: object) -> str:
    given = {
        "event": text,
        "level": "info",
        "logger": "x",
        "timestamp": "2026-01-01T00:00:00.5Z",
    }
    return json.dumps({**given, **values}) + "\n"


def test_the_servers_log_is_shown_by_connector_task_and_level(
    terminal: Commands, v1: V1
) -> None:
    terminal.server.create("a")
    log_of(v1).write_text(
        "no json\n"
        + line("started")
        + line("task failed", level="error", connector="a", task=1, why="gone")
        + line("moved", connector="a", task=0, exception="Traceback\nboom")
        + line("of another", connector="b")
    )
    assert terminal("logs", "-n", "3").splitlines() == [
        "2026-01-01 00:00:00 error   a-1 task failed (why=gone)",
        "2026-01-01 00:00:00 info    a-0 moved",
        "2026-01-01 00:00:00 info    b of another",
    ]
    assert [each["text"] for each in terminal.lines("logs", "a")] == ["task failed", "moved"]
    assert [each["text"] for each in terminal.lines("logs", "a", "--task", "0")] == ["moved"]
    assert [each["text"] for each in terminal.lines("logs", "--level", "error")] == [
        "task failed"
    ]
    assert "boom" in terminal("logs", "a", "--verbose")


def test_the_log_is_followed_over_its_rotation(v1: V1) -> None:
    file = log_of(v1)
    file.write_text(line("one"))
    with Client(v1.server.url) as client:
        [first], place = client.logs()
        with file.open("a") as out:
            out.write(line("two") + '{"event": "not yet wh')
        [second], place = client.logs(after=place)
        with file.open("a") as out:
            out.write('ole"}\n')
        file.rename(file.with_name("headrace.log.1"))
        file.write_text(line("four"))
        found, place = client.logs(after=place)
        assert client.logs(after=place)[0] == []
    texts = [each["text"] for each in (first, second, *found)]
    assert texts == ["one", "two", "not yet whole", "four"]


EXPOSITION = """\
# TYPE headrace_task_state gauge
headrace_task_state{connector="a",task="0",state="RUNNING"} 1.0
headrace_task_state{connector="a",task="0",state="FAILED"} 0.0
headrace_task_state{connector="b",task="0",state="FAILED"} 1.0
# TYPE headrace_task_records_read_total counter
headrace_task_records_read_total{connector="a",task="0"} %d
# TYPE headrace_task_lag_records gauge
headrace_task_lag_records{connector="a",task="0"} 42.0
# TYPE headrace_task_batch_seconds histogram
headrace_task_batch_seconds_bucket{connector="a",task="0",le="+Inf"} 2.0
headrace_task_batch_seconds_count{connector="a",task="0"} 2.0
headrace_task_batch_seconds_sum{connector="a",task="0"} 1.0
# TYPE headrace_task_failures_total counter
headrace_task_failures_total{connector="b",task="0"} 3.0
"""


def test_top_shows_what_tasks_do_and_how_fast(
    httpserver: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1000, 3000, 1000, 3000, 1000):
        httpserver.expect_ordered_request("/metrics").respond_with_data(EXPOSITION % number)
    url = httpserver.url_for("")
    given = ["top", "--once", "--interval", "0.1", "--server", url]
    assert main(given) == 0
    a, b = capsys.readouterr().out.splitlines()[-2:]
    assert a.split()[:3] == ["a-0", "RUNNING", "3,000"]
    assert a.split()[-4:] == ["0.50", "s", "0", "0"]
    assert "42" in a.split()
    assert (b.split()[1], b.split()[-1]) == ("FAILED", "3")
    assert main([*given, "b", "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["failures"], shown["lag_rows"]) == ("b-0", 3, None)
    assert main([*given, "--sort", "size"]) == 2


def test_offsets_go_back_to_what_they_were_and_to_a_time(terminal: Commands) -> None:
    terminal.server.create("a")
    terminal("connector", "offsets", "history", "a")
    assert "never changed manually" in terminal.err
    given = ["--partition", "filename=/in", "--offset", "position=7"]
    terminal("connector", "offsets", "set", "a", *given, "--stop")
    terminal("connector", "offsets", "undo", "a", code=2)
    assert "NAME: a must be stopped before its offsets" in terminal.err
    for asked in (["versions"], ["offsets", "history"], ["rollback"]):
        terminal("connector", *asked, "aa", code=2)
        assert "name: There is no connector 'aa'.\n  fix: Did you mean a?" in terminal.err
    back = terminal("connector", "offsets", "undo", "a", "--stop")
    assert back == "a: filename=/in: position=7 -> the beginning\n"
    assert "read again" in terminal.err
    terminal("connector", "stop", "a", "--wait")
    again = terminal.json("connector", "offsets", "undo", "a")["changes"]
    assert [each["after"] for each in again] == [{"position": 7}]
    told = terminal("connector", "offsets", "history", "a").splitlines()
    assert ["undo" in each for each in told[2:5]] == [True, True, False]
    terminal("connector", "offsets", "rewind", "a", "yesterday", code=2)
    assert "Invalid time 'yesterday'." in terminal.err
    terminal("connector", "offsets", "rewind", "a", "2026-01-01T00:00:00Z", code=1)
    assert "The position of the connector is unknown at 2026-01-01T00:00" in terminal.err
