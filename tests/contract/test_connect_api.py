"""Kafka Connect's REST API, answer for answer, as a 4.3 worker gave them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from tests.contract.connect_server import CONFIG, SINK, SINKING, SOURCE, Server, serving
from tests.waiting import until

from headrace.model import TaskId
from headrace.sdk import Position, SourceError

pytestmark = pytest.mark.timeout(60)
STOPPED_FIRST = "Connectors must be in the STOPPED state before their offsets can be modified."


@dataclass
class Api:
    """The API as a client without any library sees it."""

    server: Server
    http: httpx2.Client

    def __call__(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> httpx2.Response:
        return self.http.request(method, f"{self.server.url}{path}", json=body, **more)

    def make(self, name: str = "c", **config: str) -> None:
        body = {"name": name, "config": {**CONFIG, **config}}
        assert self("POST", "/connectors", body).status_code == 201
        self.await_state("RUNNING", name)

    def state(self, name: str = "c") -> str:
        return str(self("GET", f"/connectors/{name}/status").json()["connector"]["state"])

    def await_state(self, state: str, name: str = "c") -> None:
        until(lambda: self.state(name) == state)

    def stop(self, name: str = "c") -> None:
        assert self("PUT", f"/connectors/{name}/stop").status_code == 204
        self.await_state("STOPPED", name)


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    with serving() as server, httpx2.Client(timeout=60) as http:
        yield Api(server, http)


@pytest.fixture
def api(served: Api) -> Iterator[Api]:
    yield served
    served.server.empty()


def told(response: httpx2.Response, status: int) -> str:
    """Return the message of an error, whose form is always the same."""
    assert response.status_code == status
    error = response.json()
    assert error.keys() == {"error_code", "message"}
    assert error["error_code"] == status
    return str(error["message"])


def test_a_new_connector_says_where_it_is(api: Api) -> None:
    made = api("POST", "/connectors", {"name": "  padded  ", "config": CONFIG})
    assert made.status_code == 201
    assert made.headers["location"] == f"{api.server.url}/connectors/padded"
    assert made.json()["config"] == {**CONFIG, "name": "padded"}
    put = api("PUT", "/connectors/put/config", CONFIG)
    assert (put.status_code, put.headers["location"][-4:]) == (201, "/put")
    assert api("PUT", "/connectors/put/config", CONFIG).status_code == 200


@pytest.mark.parametrize("state", ["STOPPED", "paused"])
def test_a_connector_may_begin_in_another_state(api: Api, state: str) -> None:
    body = {"name": "c", "config": CONFIG, "initial_state": state}
    assert api("POST", "/connectors", body).status_code == 201
    api.await_state(state.upper())
    assert api("GET", "/connectors/c/tasks").json() == []


def test_scalars_of_a_configuration_become_texts(api: Api) -> None:
    config = {**CONFIG, "tasks.max": 1, "poll.interval.ms": 50, "errors.log.enable": True}
    made = api("POST", "/connectors", {"name": "c", "config": config}).json()["config"]
    assert made["tasks.max"] == "1"
    assert made["errors.log.enable"] == "true"


def test_a_configuration_is_patched_key_by_key(api: Api) -> None:
    api.make(**{"batch.max.rows": "5"})
    patched = api("PATCH", "/connectors/c/config", {"batch.max.rows": None, "topic": "other"})
    assert patched.status_code == 200
    assert patched.json()["config"] == {**CONFIG, "topic": "other", "name": "c"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "c", "config": {**CONFIG, "name": "d"}}, "doesn't match connector name"),
        ({"config": CONFIG}, "String may not be empty"),
        ({"name": "c", "config": {}}, "contains no connector type"),
        ({"name": "c"}, "config: Field required"),
        ({"name": "c", "config": {**CONFIG, "topic": None}}, "config.topic"),
        (
            {"name": "c", "config": CONFIG, "initial_state": "ASLEEP"},
            "Invalid initial_state 'ASLEEP'",
        ),
        ({"name": "c", "config": CONFIG, "more": 1}, "more: Extra inputs"),
        ([], "valid dictionary"),
        (
            {"name": "c", "config": {**CONFIG, "tasks.max": "abc"}},
            "contains the following 2 error(s):\nInvalid value abc for configuration tasks.max",
        ),
    ],
)
def test_a_mistake_in_a_new_connector_is_named(api: Api, body: Any, message: str) -> None:
    assert message in told(api("POST", "/connectors", body), 400)
    assert api("GET", "/connectors").json() == []


def test_a_client_that_takes_problems_is_told_the_field_and_the_fix_too(api: Api) -> None:
    api("POST", "/connectors", {"name": "s", "config": SINKING})
    accepted = {"Accept": "application/json, application/problem+json"}
    refused = api("DELETE", "/connectors/s/offsets", headers=accepted)
    assert refused.json() == {
        **api("DELETE", "/connectors/s/offsets").json(),
        "problem": refused.json()["message"],
        "field": None,
        "fix": "Stop it, and wait until it is stopped.",
    }
    assert api("DELETE", "/connectors/s/offsets").json().keys() == {"error_code", "message"}


def test_a_body_that_is_no_json_is_the_callers_mistake(api: Api) -> None:
    kind = {"Content-Type": "application/json"}
    broken = api.http.post(f"{api.server.url}/connectors", content=b'{"a"', headers=kind)
    assert "JSON" in told(broken, 400)
    text = api.http.post(
        f"{api.server.url}/connectors", content=b"a", headers={"Content-Type": "text/plain"}
    )
    told(text, 415)
    told(api("GET", "/connectors", headers={"Accept": "text/html"}), 406)
    told(api("GET", "/nothing"), 404)
    told(api("POST", "/connectors/c"), 405)


def test_paths_are_taken_as_kafka_connect_takes_them(api: Api) -> None:
    api.make()
    assert api("GET", "/connectors/").json() == ["c"]
    assert api("GET", "/connectors/c/").json()["name"] == "c"
    head = api("HEAD", "/connectors")
    assert (head.status_code, head.content) == (200, b"")
    options = api("OPTIONS", "/connectors")
    assert options.status_code == 200
    assert set(options.headers["allow"].split(",")) == {"GET", "HEAD", "OPTIONS", "POST"}
    odd = api("PUT", "/connectors/a%2Fb%20%C3%A4/config", CONFIG)
    assert odd.json()["name"] == "a/b ä"
    assert api("GET", "/connectors/a%2Fb%20%C3%A4").json()["name"] == "a/b ä"


def test_a_name_is_taken_once(api: Api) -> None:
    api.make()
    again = api("POST", "/connectors", {"name": "c", "config": CONFIG})
    assert told(again, 409) == "Connector c already exists"


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "", "Connector c not found"),
        ("GET", "/config", "Connector c not found"),
        ("GET", "/tasks", "Connector c not found"),
        ("GET", "/status", "No status found for connector c"),
        ("GET", "/tasks/0/status", "No status found for task c-0"),
        ("POST", "/tasks/0/restart", "Unknown task: c-0"),
        ("POST", "/restart", "Unknown connector: c"),
        ("PUT", "/pause", "Unknown connector c"),
        ("PUT", "/resume", "Unknown connector c"),
        ("PUT", "/stop", "Unknown connector c"),
        ("DELETE", "", "Connector c not found"),
        ("GET", "/offsets", "Connector c not found"),
        ("DELETE", "/offsets", "Connector c not found"),
    ],
)
def test_what_is_not_there_is_said_in_kafka_connects_words(
    api: Api, method: str, path: str, message: str
) -> None:
    assert told(api(method, f"/connectors/c{path}"), 404) == message


def test_a_task_that_is_no_number_is_not_found(api: Api) -> None:
    api.make()
    for method, path in (("GET", "status"), ("POST", "restart")):
        refused = api(method, f"/connectors/c/tasks/abc/{path}")
        assert told(refused, 404) == "HTTP 404 Not Found"


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_number_that_json_does_not_have_is_refused(api: Api, number: str) -> None:
    for path, body in (
        ("/connectors/c/config", f'{{"connector.class": "x", "rate": {number}}}'),
        ("/connector-plugins/FileStreamSource/config/validate", f'{{"rate": {number}}}'),
    ):
        headers = {"Content-Type": "application/json"}
        refused = api("PUT", path, content=body, headers=headers)
        assert "rate" in told(refused, 400)


def test_expansions_may_be_several_and_unknown(api: Api) -> None:
    api.make()
    both = api("GET", "/connectors?expand=status&expand=info").json()
    assert both["c"].keys() == {"status", "info"}
    assert api("GET", "/connectors?expand=none").json() == {"c": {}}


def test_booleans_of_queries_are_javas(api: Api) -> None:
    api.make()
    path = "/connectors/c/restart"
    assert api("POST", f"{path}?includeTasks=banana").status_code == 204
    assert api("POST", f"{path}?includeTasks=TRUE").status_code == 202
    assert api("GET", "/connector-plugins?connectorsOnly=0").json()[-1]["type"] == "converter"


def test_commands_of_state_have_no_body_and_may_be_repeated(api: Api) -> None:
    api.make()
    for command, status in [("pause", 202), ("resume", 202), ("stop", 204)]:
        for _ in range(2):
            done = api("PUT", f"/connectors/c/{command}")
            assert (done.status_code, done.content) == (status, b"")
    api.await_state("STOPPED")
    restarted = api("POST", "/connectors/c/restart")
    assert (restarted.status_code, restarted.content) == (204, b"")
    shown = api("POST", "/connectors/c/restart?includeTasks=true")
    assert shown.json()["connector"]["state"] == "RESTARTING"
    api.await_state("STOPPED")


def test_a_task_that_failed_leaves_its_connector_running(api: Api) -> None:
    api.make(**{"tasks.max": "2"})
    api.server.newest("c", 1).steps = [SourceError("broken")]
    until(lambda: api("GET", "/connectors/c/tasks/1/status").json()["state"] == "FAILED")
    status = api("GET", "/connectors/c/status").json()
    assert status["connector"]["state"] == "RUNNING"
    assert "trace" not in status["tasks"][0]
    assert "broken" in status["tasks"][1]["trace"]
    assert status["tasks"][0]["worker_id"] == "w1:8083"


def test_a_connector_that_cannot_start_is_failed_with_its_trace(api: Api) -> None:
    api.server.broken["c"] = SourceError("no such table")
    api("POST", "/connectors", {"name": "c", "config": CONFIG})
    api.await_state("FAILED")
    assert "no such table" in api("GET", "/connectors/c/status").json()["connector"]["trace"]


def test_offsets_are_changed_only_while_a_connector_is_stopped(api: Api) -> None:
    api.make()
    change = {"offsets": [{"partition": {"filename": "/in"}, "offset": {"position": 9}}]}
    assert told(api("PATCH", "/connectors/c/offsets", change), 400).startswith(STOPPED_FIRST)
    assert told(api("DELETE", "/connectors/c/offsets"), 400).startswith(STOPPED_FIRST)
    api.stop()
    done = api("PATCH", "/connectors/c/offsets", change)
    assert done.json() == {
        "message": "The offsets for this connector have been altered successfully"
    }
    assert api("GET", "/connectors/c/offsets").json() == change
    assert api.server.state_store.position(TaskId("c", 0)) == Position.of(
        {"filename": "/in"}, {"position": 9}
    )
    gone = {"offsets": [{"partition": {"filename": "/in"}, "offset": None}]}
    assert api("PATCH", "/connectors/c/offsets", gone).status_code == 200
    assert api("GET", "/connectors/c/offsets").json() == {"offsets": []}
    empty = told(api("PATCH", "/connectors/c/offsets", {"offsets": []}), 400)
    assert empty == "Partitions / offsets need to be provided for an alter offsets request"


def test_offsets_of_a_sink_are_kafkas(api: Api) -> None:
    api("POST", "/connectors", {"name": "s", "config": SINKING})
    api.await_state("RUNNING", "s")
    api.stop("s")
    path = "/connectors/s/offsets"

    def change(partition: dict[str, Any], offset: Any) -> httpx2.Response:
        return api("PATCH", path, {"offsets": [{"partition": partition, "offset": offset}]})

    lines = {"kafka_topic": "lines", "kafka_partition": 0}
    assert change(lines, {"kafka_offset": 5}).status_code == 200
    assert api("GET", path).json() == {
        "offsets": [{"partition": lines, "offset": {"kafka_offset": 5}}]
    }
    wanted = Position.of({"topic": "lines"}, {"version": 4})
    assert api.server.state_store.position(TaskId("s", 0)) == wanted
    assert "must contain the keys" in told(change({"topic": "lines"}, None), 400)
    assert "'abc'. Offset values" in told(change(lines, {"kafka_offset": "abc"}), 400)
    assert "contain the key 'kafka_offset'" in told(change(lines, {"offset": 1}), 400)
    assert api("DELETE", path).json() == {
        "message": "The offsets for this connector have been reset successfully"
    }
    assert api("GET", path).json() == {"offsets": []}


def test_plugins_are_listed_by_class_with_their_keys(api: Api) -> None:
    plugins = api("GET", "/connector-plugins").json()
    assert {each["type"] for each in plugins} == {"sink", "source"}
    assert {"class": SOURCE, "type": "source", "version": "1.0"} in plugins
    everything = api("GET", "/connector-plugins?connectorsOnly=false").json()
    assert {each["type"] for each in everything} == {
        "sink",
        "source",
        "transformation",
        "predicate",
        "converter",
    }
    keys = api("GET", f"/connector-plugins/{SOURCE}/config").json()
    names = {key["name"] for key in keys}
    assert "name" not in names
    assert "path" in names
    assert told(api("GET", "/connector-plugins/Nope/config"), 404) == "Unknown plugin Nope."


def test_a_configuration_is_checked_key_by_key(api: Api) -> None:
    config = {
        **CONFIG,
        "name": "x",
        "tasks.max": "abc",
        "transforms": "a",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": "[",
    }
    path = f"/connector-plugins/{SOURCE.rpartition('.')[2]}/config/validate"
    found = api("PUT", path, config).json()
    assert found["name"] == SOURCE
    assert found["error_count"] == 4
    assert found["groups"][0] == "Common"
    assert found["groups"][-1] == "Transforms: a"
    by_name = {each["value"]["name"]: each for each in found["configs"]}
    tasks = by_name["tasks.max"]
    assert tasks["value"] == {
        "name": "tasks.max",
        "value": None,
        "recommended_values": [],
        "errors": [
            "Invalid value abc for configuration tasks.max: Not a number of type INT",
            "Invalid value null for configuration tasks.max: Value must be non-null",
        ],
        "visible": True,
    }
    definition = tasks["definition"]
    assert (definition["type"], definition["group"]) == ("INT", "Common")
    assert definition["order"] == definition["order_in_group"] == 4
    [regex] = by_name["transforms.a.regex"]["value"]["errors"]
    assert regex.startswith("Invalid value [ for configuration regex: Invalid regex")
    other = api("PUT", f"/connector-plugins/{SINK}/config/validate", config)
    assert "does not match request type" in told(other, 400)


def test_levels_of_loggers_are_shown_and_set(api: Api) -> None:
    path = "/admin/loggers"
    assert "root" in api("GET", path).json()
    assert told(api("GET", f"{path}/no.such"), 404) == "Logger no.such not found."
    assert "was not specified" in told(api("PUT", f"{path}/uvicorn", {}), 400)
    unknown = told(api("PUT", f"{path}/uvicorn", {"level": "BOGUS"}), 404)
    assert unknown == "invalid log level 'BOGUS'."
    changed = api("PUT", f"{path}/uvicorn", {"level": "debug"}).json()
    assert {"uvicorn", "uvicorn.error"} <= set(changed)
    assert api("GET", f"{path}/uvicorn.error").json()["level"] == "DEBUG"
    cluster = api("PUT", f"{path}/uvicorn?scope=cluster", {"level": "INFO"})
    assert (cluster.status_code, cluster.content) == (204, b"")


def test_the_server_says_what_it_is_and_that_it_is_well(api: Api) -> None:
    assert api("GET", "/").json().keys() == {"version", "commit", "kafka_cluster_id"}
    assert api("GET", "/health").json()["status"] == "healthy"


def test_a_name_of_a_source_and_of_a_sink_is_told_with_both_classes(api: Api) -> None:
    body = {"name": "both", "config": {"connector.class": "file", "path": "/in"}}
    message = told(api("POST", "/connectors", body), 400)
    assert "names both a source and a sink" in message
    assert "Set topic to read, or topics to write" in message
    assert "FileSource" in message
