"""Everything that public clients of Kafka Connect can do is done, and works, unmodified.

What there is to do is read from the clients themselves, so that a newer release with more of
it fails here until that is done too.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import click
import kafka_connect_api.kafka_connect_api as other
import pytest
from click.testing import CliRunner
from kafka_connect import KafkaConnect
from kafka_connect.cli import cli
from kafka_connect_api.errors import ConnectGenericException, GenericNotFound
from tests.contract.connect_server import SOURCE, Server
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
CONFIG = {"connector.class": SOURCE, "file": "/in", "topic": "lines", "tasks.max": "2"}


def codes(owner: type) -> dict[CodeType, str]:
    """Return the functions of a class, those of its properties and decorated ones too."""
    found: dict[CodeType, str] = {}
    for name, member in vars(owner).items():
        wrapped = [member.fget, member.fset] if isinstance(member, property) else [member]
        for function in wrapped:
            cells = getattr(function, "__closure__", None) or ()
            inner = [c.cell_contents for c in cells if callable(c.cell_contents)]
            for each in inner or [function]:
                if hasattr(each, "__code__"):
                    found[each.__code__] = f"{owner.__name__}.{name}"
    return found


@contextmanager
def calls() -> Iterator[set[CodeType]]:
    """Collect what this thread calls. Nothing of the clients is replaced."""
    called: set[CodeType] = set()

    def told(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(told)
    try:
        yield called
    finally:
        sys.setprofile(before)


def missing(called: set[CodeType], *owners: type) -> list[str]:
    return sorted(
        {name for owner in owners for code, name in codes(owner).items() if code not in called}
    )


def state_of(client: KafkaConnect, name: str) -> str:
    return str(client.get_connector_status(name)["connector"]["state"])


def test_every_method_of_kafka_connect_py_works(server: Server) -> None:
    with calls() as called:
        client = KafkaConnect(server.url, auth="user:any")
        assert client.get_cluster_info()["kafka_cluster_id"]
        for name in ("one", "two"):
            assert client.create_connector({"name": name, "config": CONFIG})["name"] == name
        until(lambda: client.list_connectors(state="RUNNING") == ["one", "two"])
        assert client.get_connector("one")["type"] == "source"
        assert (
            client.update_connector("one", {**CONFIG, "topic": "t"})["config"]["topic"] == "t"
        )
        assert client.get_connector_config("one")["topic"] == "t"
        until(lambda: len(client.list_connector_tasks("one")) == 2)
        until(lambda: client.get_connector_task_status("one", 0)["state"] == "RUNNING")
        client.restart_connector_task("one", 0)
        client.restart_connector("one")
        client.restart_all_connectors(pattern="t.*", include_tasks=True)
        client.pause_connector("one")
        client.pause_all_connectors()
        until(lambda: state_of(client, "two") == "PAUSED")
        client.resume_connector("one")
        client.resume_all_connectors()
        until(lambda: client.list_connectors(state="RUNNING") == ["one", "two"])
        client.stop_connector("one")
        client.stop_all_connectors()
        until(lambda: state_of(client, "two") == "STOPPED")
        assert client.list_connector_topics("two") == {"two": {"topics": ["lines"]}}
        client.reset_connector_topics("two")
        assert {"class": SOURCE, "type": "source", "version": "1.0"} in (
            client.list_connector_plugins()
        )
        found = client.validate_connector_config(SOURCE, {**CONFIG, "name": "x"})
        assert found["error_count"] == 0
        client.delete_connector("one")
        client.delete_all_connectors()
        assert client.list_connectors() == []
    assert missing(called, KafkaConnect) == []


def test_every_member_of_kafka_connect_api_works(server: Server) -> None:
    with calls() as called:
        address = server.url.removeprefix("http://")
        host, port = address.split(":")
        api = other.Api(host, port, username="user", password="any")  # noqa: S106 - nobody's
        assert repr(other.Api(url=address)) == repr(api) == server.url
        cluster = other.Cluster(api)
        assert cluster.version in repr(cluster)
        assert cluster.kafka_cluster == "headrace"
        assert cluster.api is api
        api.post("connectors", json={"name": "c", "config": CONFIG})
        found = cluster.connectors["c"]
        assert (repr(found), found.exists(), found.cluster) == ("c", True, cluster)
        assert found.connector_class == SOURCE
        until(lambda: found.state == "RUNNING")
        until(lambda: all(task.is_running() for task in found.tasks))
        [task, _] = found.tasks
        assert (repr(task), task.connector, task.status["id"]) == ("c.0", found, 0)
        task.restart()
        found.restart()
        found.restart_all_tasks()
        found.config = {**found.config, "tasks.max": "1"}
        until(lambda: len(found.tasks) == 1)
        found.pause()
        until(lambda: found.state == "PAUSED")
        found.resume()
        found.cycle_connector()
        until(lambda: found.state == "RUNNING")
        api.put_raw("connectors/c/stop")
        until(lambda: found.state == "STOPPED")
        assert "reset" in api.delete("connectors/c/offsets")["message"]
        level = cluster.root_logger["level"]
        cluster.root_logger = level
        assert "root" in cluster.loggers
        # The client knows neither every logger nor all levels that others' loggers have.
        name = "headrace.surface"
        logging.getLogger(name).setLevel(logging.INFO)
        assert name in cluster.set_logger_log_level(name, "INFO")
        found.delete()
        with pytest.raises(GenericNotFound):
            found.exists()
        with pytest.raises(ConnectGenericException):
            api.post("connectors", json={"name": "x"})
    owners = (other.Api, other.Cluster, other.Connector, other.Task)
    assert missing(called, *owners) == []


def test_every_command_and_option_of_kc_works(server: Server, tmp_path: Any) -> None:
    done: set[str] = set()
    file = tmp_path / "c.json"

    def kc(command: str, *arguments: str) -> Any:
        given = ["--url", server.url, "--auth", "user:any", "--log-level", "ERROR"]
        result = CliRunner().invoke(cli, [*given, "--no-ssl-verify", command, *arguments])
        assert result.exit_code == 0, (command, result.output, result.exception)
        done.update(used(command, arguments))
        # The server's threads log into the same output.
        told = [line for line in result.output.splitlines() if line.startswith(("{", "["))]
        return json.loads(told[-1]) if told else None

    def running() -> bool:
        return list(kc("list", "--state", "RUNNING", "--pattern", ".*")) == ["one", "two"]

    assert kc("info")["version"]
    file.write_text(json.dumps({"name": "one", "config": CONFIG}))
    assert kc("create", "--config-file", str(file))["name"] == "one"
    kc("create", "--config-data", json.dumps({"name": "two", "config": CONFIG}))
    until(running)
    assert kc("list", "--expand", "info").keys() == {"one", "two"}
    file.write_text(json.dumps(CONFIG))
    for given in (("--config-file", str(file)), ("--config-data", file.read_text())):
        assert kc("update", "one", *given)["name"] == "one"
        assert kc("validate-config", SOURCE, *given)["name"] == SOURCE
    assert kc("get", "one")["name"] == kc("config", "one")["name"] == "one"
    assert kc("status", "one")["name"] == "one"
    assert len(kc("list-tasks", "one")) == 2
    until(lambda: kc("task-status", "one", "1")["state"] == "RUNNING")
    kc("restart-task", "one", "1")
    kc("restart", "one", "--include-tasks", "--only-failed")
    chosen = ("--all", "--pattern", "o.*", "--state", "RUNNING")
    kc("restart", *chosen)
    kc("pause", *chosen)
    until(lambda: kc("status", "one")["connector"]["state"] == "PAUSED")
    kc("resume", "--all", "--pattern", "o.*", "--state", "PAUSED")
    until(running)
    assert kc("list-topics", "one") == {"one": {"topics": ["lines"]}}
    kc("reset-topics", "one")
    assert kc("list-plugins")
    kc("delete", *chosen)
    assert kc("list") == ["two"]
    assert sorted(everything() - done) == []


def used(command: str, arguments: tuple[str, ...]) -> set[str]:
    return {command} | {f"{command} {each}" for each in arguments if each.startswith("--")}


def everything() -> set[str]:
    """Return each command of kc, and each of its options."""
    found: set[str] = set()
    for name, command in cli.commands.items():
        found.add(name)
        for option in command.params:
            if isinstance(option, click.Option):
                found.add(f"{name} {next(o for o in option.opts if o.startswith('--'))}")
    return found


def test_what_is_missing_would_be_found() -> None:
    class Client:
        def run(self) -> None: ...

        @property
        def seen(self) -> int:
            return 1

    run: Callable[[], object] = Client().run
    with calls() as called:
        run()
    assert missing(called, Client) == ["Client.seen"]
    assert "validate-config --config-data" in everything()
