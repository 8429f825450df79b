"""`headrace connector`, in this process, against the real API over a store, without Spark."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.contract.commands import Commands
from tests.contract.connect_server import CONFIG, SINK, SOURCE

from headrace.sdk import SourceError

pytestmark = pytest.mark.timeout(120)
KEYS = [f"{key}={value}" for key, value in CONFIG.items()]


@pytest.fixture
def connector(terminal: Commands) -> Commands:
    return terminal.of("connector")


def test_a_connector_is_created_from_keys_and_waited_for(connector: Commands) -> None:
    sets = [part for key in KEYS for part in ("--set", key)]
    assert connector("create", "--name", "a", *sets, "--wait") == "a: created\na: running\n"
    assert "a: running, 1 running" in connector.err
    connector("create", "--name", "a", *sets, code=1)
    assert connector.err.startswith("error[server.conflict] ")
    assert connector.json("create", "--name", "b", *sets, "--stopped", "--wait") == [
        {"name": "b", "asked": "created", "state": "STOPPED"}
    ]


def test_a_client_leaves_the_home_folder_alone(connector: Commands, tmp_path: Path) -> None:
    connector("list")
    assert not (tmp_path / "home").exists()


def test_misspelt_keys_that_the_server_passes_over_are_shown(
    connector: Commands, tmp_path: Path
) -> None:
    """They came to nobody's eyes: the server logs them, and Kafka Connect's answer has none."""
    wrong = {"errors.tolerence": "all", "errors.retry.timout": "5", "fille": "/typo"}
    wrong |= {"value.converter": "JsonConverter", "value.converter.schemas.enabled": "false"}
    (tmp_path / "a.json").write_text(json.dumps({"name": "a", "config": CONFIG | wrong}))
    for command, said in (("validate", "a: valid\n"), ("create", "a: created\n")):
        assert connector(command, "a.json") == said
        for close in ("errors.tolerance", "errors.retry.timeout", "file", "schemas.enable"):
            assert f"Did you mean {close}?" in connector.err, (command, close)
        assert connector.err.count("warning[config.invalid] a: ") == 4
    config = CONFIG | wrong | {"topic": "other"}
    (tmp_path / "a.json").write_text(json.dumps({"name": "a", "config": config}))
    assert connector("apply", "a.json") == "a: changed\n"
    assert connector.err.count("warning[config.invalid] a: ") == 4
    (found,) = connector.json("validate", "a.json")
    assert len(found["warnings"]) == 4


FORMS = {
    "kafka.json": json.dumps({"name": "a", "config": CONFIG}),
    "flat.yaml": "name: a\nconnector.class: " + SOURCE + "\nfile: /in\ntopic: lines\n",
    "expanded.json": json.dumps({"a": {"info": {"name": "a", "config": CONFIG, "tasks": []}}}),
}


@pytest.mark.parametrize("name", FORMS)
def test_files_are_taken_in_every_form(connector: Commands, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FORMS[name])
    assert connector("validate", name) == "a: valid\n"
    assert connector("apply", name) == "a: created\n"
    assert connector("apply", name) == "a: unchanged\n"
    assert connector.json("config", "a") == {**CONFIG, "name": "a"}


def test_a_definition_with_sections_becomes_a_source_and_a_sink(
    connector: Commands, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: flow\nsource: {connector: file, path: ., format: text}\ntopic: lines\n"
        "sinks: [{connector: console}]\ntransforms:\n"
        "- {type: 'InsertField$Value', static.field: a, static.value: b, negate: true,\n"
        "   predicate: {type: TopicNameMatches, pattern: li.*}}\n"
    )
    assert connector("apply", "flow.yaml", "--wait").splitlines()[:2] == [
        "flow: created",
        "flow-sink: created",
    ]
    source = connector.json("config", "flow")
    assert source["connector.class"].endswith("FileSource")
    assert source["transforms"] == "InsertField1"
    assert source["transforms.InsertField1.negate"] == "true"
    assert source["predicates.InsertField1-predicate.pattern"] == "li.*"
    sink = connector.json("config", "flow-sink")
    assert (sink["connector.class"], sink["topics"]) == ("console", "lines")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nsource: datagen\nsinks: [console]\n", "a.yaml: topic: a has no topic"),
        ("name: a\nconfig: {}\nextra: 1\n", "Unknown key beside config: extra."),
        ("name: a\nstate: asleep\nconfig: {file: x}\n", "Invalid state 'asleep'."),
        ("config: {file: x}\n", "a.yaml: name: The connector has no name."),
        ("name: a\nconfig: {name: b}\n", "The name 'b' is not that of the connector, 'a'"),
        ("- 1\n", "A connector must be a mapping of keys, got int."),
    ],
)
def test_a_file_that_describes_no_connector_is_refused_with_its_place(
    connector: Commands, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    connector("apply", "a.yaml", code=2)
    assert told in connector.err


def test_what_is_wrong_is_told_by_key_and_connector(
    connector: Commands, tmp_path: Path
) -> None:
    both = [
        {"name": "bad", "config": {**CONFIG, "tasks.max": "many"}},
        {"name": "good", "config": CONFIG},
    ]
    (tmp_path / "both.json").write_text(json.dumps(both))
    connector("validate", "both.json", code=2)
    assert "error[config.invalid] bad: tasks.max: Invalid value many" in connector.err
    assert connector("apply", "both.json", code=2) == "good: created\n"
    assert "error[config.invalid] bad: tasks.max: Invalid value many" in connector.err
    told = connector.json("apply", "both.json", code=2)
    assert told[0] == {"name": "good", "asked": "unchanged"}
    assert told[1]["errors"][0]["field"] == "tasks.max"


def test_a_pattern_stands_for_several_connectors(connector: Commands) -> None:
    connector.server.create("orders-1", "orders-2", "bills")
    assert connector("pause", "orders-*", "--wait") == "orders-1: paused\norders-2: paused\n"
    assert connector.server.state("bills") == "RUNNING"
    assert [each["name"] for each in connector.json("list", "--state", "paused")] == [
        "orders-1",
        "orders-2",
    ]
    assert connector("resume", "*", "--wait").count("running") == 3
    connector("stop", "receipts-*", code=2)
    assert "No connector matches 'receipts-*'." in connector.err
    connector("delete", "orders-*", code=2)
    assert "Add --yes to delete all of them." in connector.err
    assert connector("delete", "orders-*", "--yes", "--wait").count("deleted") == 2
    assert [each["name"] for each in connector.json("list")] == ["bills"]


def test_what_a_deleted_connector_leaves_at_its_source_is_told(connector: Commands) -> None:
    keys = {
        "connector.class": "postgres",
        "connection.url": "postgresql://ann@127.0.0.1:1/shop",
        "connection.password": "hunter2",
        "topic": "shop",
    }
    sets = [part for key, text in keys.items() for part in ("--set", f"{key}={text}")]
    connector("create", "--name", "shop", *sets, "--stopped")
    with capture_logs() as logs:
        told = connector("delete", "shop")
    assert "SELECT pg_drop_replication_slot('headrace_shop');" in told
    assert 'DROP PUBLICATION "headrace_shop";' in told
    assert told.endswith("shop: deleted\n")
    assert [each["left"] in told for each in logs if "left" in each] == [True, True]
    assert "hunter2" not in told
    connector("create", "--name", "shop", *sets, "--stopped")
    (found,) = connector.json("delete", "shop")
    assert [("headrace_shop" in each) for each in found["left"]] == [True, True]
    never = [*sets, "--set", "snapshot.mode=initial_only"]
    connector("create", "--name", "shop", *never, "--stopped")
    assert connector("delete", "shop") == "shop: deleted\n"


def test_one_that_is_not_there_leaves_the_others_alone(connector: Commands) -> None:
    connector.server.create("orders-1", "orders-2")
    assert connector("stop", "orders-1", "order-2", "--wait", code=2) == "orders-1: stopped\n"
    assert "There is no connector 'order-2'.\n  fix: Did you mean orders-2" in connector.err
    told = connector.json("restart", "orders-2", "nobody", code=2)
    assert told[0] == {"name": "orders-2", "asked": "restarting"}
    assert told[1]["errors"][0]["code"] == "server.not_found"


def test_a_connector_is_shown_from_all_sides(connector: Commands) -> None:
    connector.server.create("a")
    [line] = [line.split() for line in connector("list").splitlines() if line.startswith("a ")]
    assert line == ["a", "source", "RUNNING", "1", "running", "FileStreamSourceConnector"]
    assert "a (source) is RUNNING: 1 running" in connector("get", "a")
    assert connector.json("get", "a")["config"]["file"] == "/in"
    assert connector.json("status", "a")[0]["tasks"][0]["state"] == "RUNNING"
    assert "w1:8083" in connector("status")
    assert "task.class=Script" in connector("tasks", "a")
    assert connector.json("tasks", "a")[0]["config"] == {"task.class": "Script", "part": "0"}
    assert connector("topics", "a") == "lines\n"
    assert connector.json("topics", "a", "--reset") == {"a": []}
    assert "file=/in" in connector("config", "a").splitlines()


def test_why_a_connector_failed_is_shown_and_gives_1(
    connector: Commands, tmp_path: Path
) -> None:
    connector.server.broken["a"] = SourceError("its folder is gone", fix="Make it.")
    (tmp_path / "a.json").write_text(json.dumps({"name": "a", "config": CONFIG}))
    connector("create", "a.json", "--wait", code=1)
    assert "error[connector.failed] a: a failed: [source.failed] its folder" in connector.err
    assert "its folder is gone" in connector("status", "a")
    assert connector.json("list", "--state", "FAILED")[0]["name"] == "a"
    connector.server.broken.clear()
    assert connector("restart", "a", "--failed", "--wait") == "a: running\n"


def test_the_status_says_when_what_failed_is_restarted(
    connector: Commands, tmp_path: Path
) -> None:
    told = "Restart 2 of 10 is due at 2026-11-21 21:40:07 UTC."
    connector.server.broken["a"] = SourceError(f"its folder is gone\nhidden\n{told}")
    (tmp_path / "a.json").write_text(json.dumps({"name": "a", "config": CONFIG}))
    connector("create", "a.json", "--wait", code=1)
    shown = connector("status", "a")
    assert told in shown
    assert "hidden" not in shown
    assert "hidden" in connector("status", "a", "--trace")


def test_keys_are_changed_one_by_one(connector: Commands) -> None:
    connector.server.create("a")
    assert connector("config", "a", "--set", "topic=other", "--set", "batch.max.rows=5") == (
        "a: changed\n"
    )
    connector("config", "a", "--unset", "batch.max.rows", "--wait")
    assert connector.json("config", "a") == {**CONFIG, "topic": "other", "name": "a"}
    connector("config", "a", "--set", "topic", code=2)
    assert "--set must have the form KEY=VALUE." in connector.err


def test_offsets_are_changed_while_the_connector_is_stopped_for_that(
    connector: Commands,
) -> None:
    connector.server.create("a")
    given = ["--partition", "filename=/in", "--offset", "position=7"]
    connector("offsets", "set", "a", *given, code=2)
    assert connector.err == (
        "error[server.refused] NAME: a must be stopped before its offsets are changed.\n"
        "  fix: Add --stop, or stop it first: headrace connector stop a --wait.\n"
    )
    assert connector("offsets", "set", "a", *given, "--stop") == (
        "a: filename=/in: the beginning -> position=7\n"
    )
    connector.server.await_state("RUNNING", "a")
    shown = connector.json("offsets", "view", "a")
    assert shown == {"a": [{"partition": {"filename": "/in"}, "offset": {"position": 7}}]}
    assert "position=7" in connector("offsets", "view", "a")
    connector("stop", "a", "--wait")
    assert connector("offsets", "set", "a", "--offset", "position=9").endswith(
        "-> position=9\n"
    )
    assert connector("offsets", "reset", "a").endswith("position=9 -> the beginning\n")
    assert connector.server.state("a") == "STOPPED"


def test_offsets_are_set_from_a_file_as_they_are_shown(
    connector: Commands, tmp_path: Path
) -> None:
    connector.server.create("a")
    connector("stop", "a", "--wait")
    offsets = [{"partition": {"filename": "/in"}, "offset": {"position": 7}}]
    for value in (offsets, {"offsets": offsets}, {"a": offsets}):
        (tmp_path / "offsets.json").write_text(json.dumps(value))
        assert connector.json("offsets", "set", "a", "offsets.json")["after"] == offsets
    (tmp_path / "offsets.json").write_text("{}")
    connector("offsets", "set", "a", "offsets.json", code=2)
    assert "contains no valid offsets" in connector.err


SINK_KEYS = [f"connector.class={SINK}", "topics=lines", "file=/out"]
LINES = ["--partition", "kafka_topic=lines"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--offset", "kafka_offset=1"], "--partition: Which partition? All of them are at t"),
        ([*LINES, "--offset", "kafka_offset=1"], "partition: The partition for a sink conne"),
        (
            [*LINES, "--partition", "kafka_partition=7", "--offset", "kafka_offset=1"],
            "partition: 'lines' has no partition 7: every topic has only partition 0.",
        ),
        (
            [*LINES, "--partition", "kafka_partition=0", "--offset", "offset=1"],
            "offset: The offset for a sink connector should either be null or contain the key",
        ),
        (
            [*LINES, "--partition", "kafka_partition=0", "--offset", "kafka_offset=-1"],
            "offset: Invalid offset -1; expected an integer of at least 0.",
        ),
    ],
)
def test_offsets_that_a_sink_cannot_take_are_told_with_their_place_and_a_fix(
    connector: Commands, given: list[str], told: str
) -> None:
    sets = [part for key in SINK_KEYS for part in ("--set", key)]
    connector("create", "--name", "s", *sets, "--stopped", "--wait")
    connector("offsets", "set", "s", *given, code=2)
    assert f"] {told}" in connector.err
    assert "\n  fix: " in connector.err


def test_a_task_that_is_not_there_is_told_with_those_that_are(connector: Commands) -> None:
    connector.server.create("a")
    connector("restart", "a", "--task", "9", code=2)
    assert (
        connector.err
        == "error[server.not_found] task: a has no task 9.\n  fix: Its tasks are: 0.\n"
    )


def test_plugins_and_loggers_of_the_server_are_shown(connector: Commands) -> None:
    assert SOURCE in connector("plugins")
    assert "headrace_plugins.predicates" in connector("plugins", "--all")
    assert "what it means" in connector("plugins", SOURCE)
    assert {"name", "type"} <= connector.json("plugins", SOURCE)[0].keys()
    assert connector.json("loggers", "headrace.nothing.there", "--level", "debug") == [
        {"name": "headrace.nothing.there", "level": "DEBUG", "last_modified": ANY_NUMBER}
    ]
    connector("loggers", "headrace.nothing.ther", code=2)
    assert "Did you mean headrace.nothing.there" in connector.err
    connector("loggers", "headrace.nothing.there", "--level", "loud", code=2)
    assert "] --level: Invalid level 'loud'.\n  fix: Use one of: TRACE, DEBUG" in connector.err
    connector("plugins", "FileStreamSourc", code=2)
    assert "] CLASS: No plugin is called 'FileStreamSourc'.\n  fix: Did you" in connector.err


class _AnyNumber:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __hash__(self) -> int:
        return 0


ANY_NUMBER = _AnyNumber()


def test_names_are_offered_to_the_shell(connector: Commands) -> None:
    from headrace.cli.invocation import Invocation
    from headrace.cli.options import known_names

    connector.server.create("orders-1", "bills")

    class Context:
        def ensure_object(self, kind: Callable[[], Invocation]) -> Invocation:
            return kind()

    assert known_names(Context(), "ord") == ["orders-1"]  # type: ignore[arg-type]


def test_where_the_server_is_and_its_token_come_from_options_too(
    connector: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = connector.server.url
    monkeypatch.setenv("HEADRACE_SERVER", "http://127.0.0.1:1")
    connector("list", code=3)
    assert "error[server.unreachable] server: No server responds" in connector.err
    (tmp_path / "token").write_text("s3cret\n")
    connector("list", "--server", url, "--token-file", "token")
    (tmp_path / "token").write_text("s3cret and more\n")
    connector("list", "--server", url, "--token-file", "token", code=2)
    assert "s3cret" not in connector.err
