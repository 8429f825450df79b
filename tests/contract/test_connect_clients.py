"""Clients of Kafka Connect work with our server as they are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_connect import KafkaConnect
from kafka_connect_api.errors import ConnectGenericException
from kafka_connect_api.kafka_connect_api import Api, Cluster
from requests import HTTPError
from tests.contract.connect_server import SINK, SOURCE, Server
from tests.waiting import until

from headrace.sdk import SourceError

pytestmark = pytest.mark.timeout(60)
CONFIG = {"connector.class": SOURCE, "file": "/in", "topic": "lines", "tasks.max": "2"}


@pytest.fixture
def client(server: Server) -> KafkaConnect:
    return KafkaConnect(server.url)


def state_of(client: KafkaConnect, name: str = "src") -> str:
    return str(client.get_connector_status(name)["connector"]["state"])


def make(client: KafkaConnect, name: str = "src") -> dict[str, Any]:
    made: dict[str, Any] = client.create_connector({"name": name, "config": CONFIG})
    until(lambda: state_of(client, name) == "RUNNING")
    return made


def test_kafka_connect_py_creates_shows_and_lists(client: KafkaConnect) -> None:
    assert set(client.get_cluster_info()) == {"version", "commit", "kafka_cluster_id"}
    assert client.list_connectors() == []
    made = make(client)
    assert made == {
        "name": "src",
        "config": {**CONFIG, "name": "src"},
        "tasks": made["tasks"],
        "type": "source",
    }
    make(client, "other")
    assert client.list_connectors() == ["other", "src"]
    assert client.list_connectors(pattern="s.*") == ["src"]
    assert client.list_connectors(state="running") == ["other", "src"]
    infos = client.list_connectors(expand="info")
    assert infos["src"]["info"]["config"] == {**CONFIG, "name": "src"}
    statuses = client.list_connectors(expand="status")
    assert statuses["src"]["status"]["type"] == "source"
    assert client.get_connector("src")["tasks"] == [
        {"connector": "src", "task": 0},
        {"connector": "src", "task": 1},
    ]
    assert client.get_connector_config("src") == {**CONFIG, "name": "src"}


def test_kafka_connect_py_changes_and_deletes(client: KafkaConnect, server: Server) -> None:
    make(client)
    changed = client.update_connector("src", {**CONFIG, "tasks.max": "1"})
    assert changed["config"]["tasks.max"] == "1"
    until(lambda: len(client.list_connector_tasks("src")) == 1)
    assert client.update_connector("new", CONFIG)["name"] == "new"
    client.delete_connector("src")
    assert client.list_connectors() == ["new"]
    until(lambda: {lease.task.connector for lease in server.state_store.leases()} == {"new"})
    client.delete_all_connectors()
    assert client.list_connectors() == []


def test_kafka_connect_py_pauses_resumes_and_stops(client: KafkaConnect) -> None:
    make(client)
    client.pause_connector("src")
    until(lambda: state_of(client) == "PAUSED")
    assert [task["state"] for task in client.get_connector_status("src")["tasks"]] == [
        "PAUSED",
        "PAUSED",
    ]
    client.resume_all_connectors(state="paused")
    until(lambda: state_of(client) == "RUNNING")
    client.stop_all_connectors(pattern="src")
    until(lambda: state_of(client) == "STOPPED")
    assert client.list_connector_tasks("src") == []
    client.resume_connector("src")
    until(lambda: state_of(client) == "RUNNING")
    client.pause_all_connectors()
    until(lambda: state_of(client) == "PAUSED")
    client.stop_connector("src")


def test_kafka_connect_py_restarts_what_failed(client: KafkaConnect, server: Server) -> None:
    make(client)
    until(lambda: client.get_connector_task_status("src", 1)["state"] == "RUNNING")
    server.newest("src", 1).steps = [SourceError("broken")]
    until(lambda: client.get_connector_task_status("src", 1)["state"] == "FAILED")
    assert "broken" in client.get_connector_task_status("src", 1)["trace"]
    assert state_of(client) == "RUNNING"
    shown = client.restart_connector("src", include_tasks=True, only_failed=True)
    assert shown["connector"]["state"] == "RUNNING"
    assert [task["state"] for task in shown["tasks"]] == ["RUNNING", "RESTARTING"]
    until(lambda: client.get_connector_task_status("src", 1)["state"] == "RUNNING")
    assert client.restart_connector("src") is None
    client.restart_all_connectors(include_tasks=True)
    client.restart_connector_task("src", 0)
    until(lambda: client.get_connector_task_status("src", 0)["state"] == "RUNNING")


def test_kafka_connect_py_asks_for_topics_and_plugins(client: KafkaConnect) -> None:
    make(client)
    assert client.list_connector_topics("src") == {"src": {"topics": ["lines"]}}
    client.reset_connector_topics("src")
    assert client.list_connector_topics("src") == {"src": {"topics": []}}
    plugins = client.list_connector_plugins()
    assert {"class": SOURCE, "type": "source", "version": "1.0"} in plugins
    found = client.validate_connector_config(SOURCE, {**CONFIG, "name": "x", "tasks.max": "y"})
    assert found["error_count"] == 2


def test_kafka_connect_py_hears_of_mistakes(client: KafkaConnect) -> None:
    make(client)
    for act in (
        lambda: client.get_connector("none"),
        lambda: client.get_connector_status("none"),
        lambda: client.create_connector({"name": "src", "config": CONFIG}),
        lambda: client.create_connector({"name": "x", "config": {"connector.class": "None"}}),
        lambda: client.restart_connector_task("src", 7),
        lambda: client.delete_connector("none"),
        lambda: client.pause_connector("none"),
    ):
        with pytest.raises(HTTPError):
            act()


def kc(server: Server, *arguments: str) -> Any:
    program = Path(sys.executable).with_name("kc")
    done = subprocess.run(
        [program, "--url", server.url, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_the_command_kc_works(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "src", "config": CONFIG}))
    assert kc(server, "create", "--config-file", str(file))["name"] == "src"
    until(lambda: kc(server, "status", "src")["connector"]["state"] == "RUNNING")
    assert kc(server, "list") == ["src"]
    assert kc(server, "config", "src")["topic"] == "lines"
    assert len(kc(server, "list-tasks", "src")) == 2
    kc(server, "pause", "src")
    until(lambda: kc(server, "task-status", "src", "0")["state"] == "PAUSED")
    kc(server, "resume", "--all")
    kc(server, "restart", "src", "--include-tasks")
    assert kc(server, "list-topics", "src") == {"src": {"topics": ["lines"]}}
    assert kc(server, "update", "src", "--config-data", json.dumps(CONFIG))["name"] == "src"
    kc(server, "delete", "src")
    assert kc(server, "list") == []


@pytest.fixture
def cluster(server: Server) -> Cluster:
    return Cluster(Api(url=server.url))


def test_kafka_connect_api_runs_a_connector_through_its_life(
    cluster: Cluster, client: KafkaConnect
) -> None:
    make(client)
    assert cluster.version
    assert cluster.kafka_cluster
    found = cluster.connectors["src"]
    assert found.exists()
    assert found.connector_class == SOURCE
    assert found.state == "RUNNING"
    until(lambda: all(task.is_running() for task in found.tasks))
    assert [task.config["part"] for task in found.tasks] == ["0", "1"]
    found.pause()
    until(lambda: found.state == "PAUSED")
    found.resume()
    until(lambda: found.state == "RUNNING")
    found.restart()
    found.restart_all_tasks()
    found.config = {**found.config, "tasks.max": "3"}
    until(lambda: len(found.tasks) == 3)
    found.cycle_connector()
    until(lambda: found.state == "RUNNING")
    found.delete()
    with pytest.raises(ConnectGenericException):
        found.status  # noqa: B018 - the look-up is what raises


def test_kafka_connect_api_sets_levels_of_loggers(cluster: Cluster) -> None:
    before = cluster.root_logger["level"]
    cluster.root_logger = "ERROR"
    assert cluster.root_logger["level"] == "ERROR"
    cluster.root_logger = before
    [name] = [each for each in cluster.loggers if each == "uvicorn.error"]
    assert name in cluster.set_logger_log_level(name, "DEBUG")
    assert cluster.loggers[name]["level"] == "DEBUG"
    assert cluster.loggers[name]["last_modified"] > 0


def test_a_sink_is_shown_as_one(client: KafkaConnect) -> None:
    config = {"connector.class": SINK, "topics": "lines", "file": "/out"}
    assert client.create_connector({"name": "snk", "config": config})["type"] == "sink"
