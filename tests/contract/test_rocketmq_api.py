"""RocketMQ Connect's REST API: each path of its handler, in its envelope and its words."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from tests.contract.connect_server import Server, rocketmq_serving
from tests.waiting import until

from headrace.rest import Role
from headrace.rest.rocketmq import needed_role
from headrace.sdk import SourceError

pytestmark = pytest.mark.timeout(60)
SOURCE = "org.apache.rocketmq.connect.file.FileSourceConnector"
SINK = "org.apache.rocketmq.connect.file.FileSinkConnector"
READS = {"connector.class": SOURCE, "filename": "/in", "connect.topicname": "fileTopic"}
WRITES = {"connector.class": SINK, "filename": "/out", "connect.topicnames": "a;b"}


@dataclass
class Api:
    """The API as RocketMQ Connect's own scripts use it: curl, nearly always with GET."""

    server: Server
    http: httpx2.Client

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.http.request(method, f"{self.server.url}{path}", json=body, **more)

    def body(self, path: str, **more: Any) -> Any:
        """Return what a GET gives, out of its envelope."""
        return success(self.send("GET", path, **more))

    def refusal(self, path: str, code: int = 400, **more: Any) -> str:
        """Return what a GET is refused with."""
        return refusal(self.send("GET", path, **more), code)

    def make(self, name: str, config: dict[str, Any]) -> Any:
        made = success(self.send("POST", f"/connectors/{name}", config))
        self.await_state("RUNNING", name)
        return made

    def state(self, name: str) -> str:
        return str(self.body(f"/connectors/{name}/status")["connector"]["state"])

    def await_state(self, state: str, name: str) -> None:
        until(lambda: self.state(name) == state)


def success(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200
    envelope = answer.json()
    assert envelope.keys() == {"status", "body"}, envelope
    assert envelope["status"] == 200
    return envelope["body"]


def refusal(answer: httpx2.Response, code: int) -> str:
    assert answer.status_code == 200
    envelope = answer.json()
    assert envelope.keys() == {"errorCode", "message"}
    assert envelope["errorCode"] == code
    return str(envelope["message"])


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    with rocketmq_serving() as server, httpx2.Client(timeout=60) as http:
        yield Api(server, http)


@pytest.fixture
def api(served: Api) -> Iterator[Api]:
    yield served
    served.server.empty()


def test_a_connector_is_created_by_post_and_echoed(api: Api) -> None:
    sent = {**READS, "max.tasks": 2, "ordering.msg.enable": True, "more": {"a": [1]}}
    assert api.make("fileSource", sent) == sent
    info = api.body("/connectors/fileSource/config")
    assert info == {
        "name": "fileSource",
        "config": {
            **READS,
            "max.tasks": "2",
            "ordering.msg.enable": "true",
            "more": '{"a":[1]}',
        },
        "tasks": [{"connector": "fileSource", "task": n} for n in range(2)],
        "type": "SOURCE",
    }


def test_a_connector_is_created_by_get_with_its_configuration_in_the_query(api: Api) -> None:
    given = {"config": json.dumps(WRITES)}
    assert api.body("/connectors/fileSink", params=given) == WRITES
    api.await_state("RUNNING", "fileSink")
    assert api.body("/connectors/fileSink/config")["config"] == WRITES
    assert api.body("/connectors/fileSink/config")["type"] == "SINK"


def test_the_body_may_be_said_to_be_anything(api: Api) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d says
    posted = api.http.post(
        f"{api.server.url}/connectors/c", content=json.dumps(READS), headers=kind
    )
    assert success(posted) == READS


def test_a_connector_is_given_another_configuration_and_keeps_its_target(api: Api) -> None:
    api.make("c", READS)
    api.body("/connectors/c/pause")
    api.await_state("PAUSED", "c")
    api.send("POST", "/connectors/c", {**READS, "max.tasks": "3"})
    assert api.body("/connectors/c/config")["config"]["max.tasks"] == "3"
    assert api.state("c") == "PAUSED"
    api.body("/connectors/c/resume")
    until(lambda: len(api.body("/connectors/c/tasks")) == 3)
    again = api.send("POST", "/connectors/c", {**READS, "max-task": 3})
    assert refusal(again, 400) == "Connector with same config already exist."


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ("", "Failed! query param 'config' is required "),
        ("  ", "Failed! query param 'config' is required "),
        ("{", "Failed! query param 'config' is malformed"),
        ("[]", "Failed! query param 'config' is malformed"),
        ("{}", "Request config key: connector.class"),
        ('{"connector.class": "Nope"}', "Nope"),
        (json.dumps({"connector.class": SINK}), "Config connect.topicnames cannot be empty"),
        (json.dumps({**READS, "max.tasks": "x"}), "Invalid value x for configuration max.tas"),
        (json.dumps({**READS, "connector.direct.enable": True}), "without a topic in between"),
        (json.dumps({**WRITES, "consume.from.where": "MIDDLE"}), "CONSUME_FROM_FIRST_OFFSET"),
        (json.dumps({**READS, "name": "other"}), "doesn't match connector name"),
    ],
)
def test_a_mistake_in_a_configuration_is_named(api: Api, sent: str, message: str) -> None:
    posted = api.http.post(f"{api.server.url}/connectors/c", content=sent)
    assert message in refusal(posted, 400)
    asked = api.send("GET", "/connectors/c", params={"config": sent})
    assert message in refusal(asked, 400)
    assert api.body("/connectors/list") == {}


def test_all_connectors_are_listed_with_status_and_info(api: Api) -> None:
    api.make("s", READS)
    worker = "w1:8083"
    listed = {
        "s": {
            "status": {
                "name": "s",
                "connector": {"state": "RUNNING", "trace": None, "workerId": worker},
                "tasks": [{"state": "RUNNING", "trace": None, "workerId": worker, "id": 0}],
                "type": "SOURCE",
            },
            "info": {
                "name": "s",
                "config": READS,
                "tasks": [{"connector": "s", "task": 0}],
                "type": "SOURCE",
            },
        }
    }
    until(lambda: api.body("/connectors/list") == listed)  # when its task runs as well
    assert api.body("/connectors/list/") == listed


def test_a_task_that_failed_says_why(api: Api) -> None:
    api.make("c", {**READS, "max.tasks": "2"})
    api.server.newest("c", 1).steps = [SourceError("broken")]
    path = "/connectors/c/tasks/1/status"
    until(lambda: api.body(path)["state"] == "FAILED")
    assert "broken" in api.body(path)["trace"]
    assert api.body("/connectors/c/tasks/0/status")["trace"] is None
    tasks = api.body("/connectors/c/tasks")
    assert [each["id"] for each in tasks] == [{"connector": "c", "task": n} for n in range(2)]
    assert tasks[1]["config"]["part"] == "1"
    allocated = api.body("/allocated/tasks")
    assert allocated.keys() == {
        "pendingTasks",
        "runningTasks",
        "stoppingTasks",
        "stoppedTasks",
        "errorTasks",
    }
    [running], [failed] = allocated["runningTasks"], allocated["errorTasks"]
    assert (running["connectorName"], running["taskState"]) == ("c", "RUNNING")
    assert (failed["taskState"], failed["config"]["part"]) == ("ERROR", "1")
    assert api.body("/allocated/connectors") == {"c": {**READS, "max.tasks": "2"}}
    assert api.body("/getClusterInfo") == ["w1:8083"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/config", "Connector[c d] does not exist"),
        ("/tasks", "Connector[c d] does not exist"),
        ("/status", "No status found for connector c d"),
        ("/tasks/0/status", "No status found for task c d-0"),
        ("/stop", "Connector [c d] does not exist"),
        ("/delete", "Connector [c d] does not exist"),
        ("/pause", "Connector [c d] does not exist"),
        ("/resume", "Connector [c d] does not exist"),
    ],
)
def test_what_is_not_there_is_said_in_rocketmq_connects_words(
    api: Api, path: str, message: str
) -> None:
    assert api.refusal(f"/connectors/c%20d{path}") == message


def test_a_number_of_a_task_is_a_number(api: Api) -> None:
    assert "number" in api.refusal("/connectors/c/tasks/x/status")


def test_connectors_are_paused_resumed_and_removed_one_by_one(api: Api) -> None:
    api.make("a%2Fb", READS)
    assert api.body("/connectors/a%2Fb/pause") == "Connector [a/b] paused successfully"
    api.await_state("PAUSED", "a%2Fb")
    assert api.body("/connectors/a%2Fb/resume") == "Connector [a/b] resumed successfully"
    api.await_state("RUNNING", "a%2Fb")
    assert api.body("/connectors/a%2Fb/stop") == "Connector [a/b] deleted successfully"
    assert api.body("/connectors/list") == {}


def test_connectors_are_paused_resumed_and_removed_all_at_once(api: Api) -> None:
    asked = "connector needs to be"
    assert api.body("/connectors/pause/all").startswith(f"No {asked} paused")
    assert api.body("/connectors/resume/all").startswith(f"No {asked} resumed")
    assert api.body("/connectors/stop/all") == (
        f"No {asked} deleted, please add connector first"
    )
    api.make("a", READS)
    api.make("b", WRITES)
    assert api.body("/connectors/pause/all") == "2 connectors are suspended"
    for name in "ab":
        api.await_state("PAUSED", name)
    assert api.body("/connectors/resume/all") == "2 connectors are resumed"
    for name in "ab":
        api.await_state("RUNNING", name)
    assert api.body("/connectors/stop/all") == "[a, b] connectors are deleted"
    assert api.body("/connectors/list") == {}


def test_who_changed_what_is_kept(api: Api) -> None:
    last = api.server.wanted.last_event()
    api.make("c", READS)
    api.body("/connectors/c/stop")
    made, gone = (
        next(e for e in api.server.wanted.events(last) if e.kind == kind)
        for kind in ("created", "deleted")
    )
    assert made.by == gone.by == "anonymous@127.0.0.1"


def test_plugins_are_listed_by_class(api: Api) -> None:
    everything = api.body("/plugin/list")
    assert {"className": SOURCE, "type": "SOURCE", "version": "1.0"} in everything
    kinds = list(dict.fromkeys(each["type"] for each in everything))
    assert kinds == ["SINK", "SOURCE", "TRANSFORMATION", "CONVERTER"]
    connectors = api.body("/plugin/list/connectors")
    assert connectors == [e for e in everything if e["type"] in {"SINK", "SOURCE"}]
    assert api.body("/plugin/reload") == "Plugin reload succeeded"
    assert api.body("/plugin/list") == everything


def test_the_keys_of_a_plugin_are_told(api: Api) -> None:
    keys = api.body("/plugin/config", params={"className": SOURCE})
    by_name = {key["name"]: key for key in keys}
    assert by_name["filename"].keys() == {
        "name",
        "type",
        "required",
        "defaultValue",
        "importance",
        "documentation",
        "group",
        "orderInGroup",
        "width",
        "displayName",
        "dependents",
    }
    assert "connect.topicname" in by_name
    assert "topic" not in by_name
    assert "Nope" in api.refusal("/plugin/config", params={"className": "Nope"})
    assert "className" in api.refusal("/plugin/config")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_configuration_is_checked_key_by_key(api: Api, method: str) -> None:
    config = {
        **WRITES,
        "name": "x",
        "max.tasks": "abc",
        "transforms": "a",
        "transforms.a.class": "org.apache.rocketmq.connect.transforms.PatternRename$Value",
    }
    path = "/plugin/config/validate"
    if method == "GET":
        found = api.body(path, params={"config": json.dumps(config)})
    else:
        found = success(api.send(method, path, config))
    assert found.keys() == {"name", "errorCount", "groups", "configs"}
    values = {each["value"]["name"]: each["value"] for each in found["configs"]}
    assert values["connect.topicnames"]["value"] == "a,b"
    assert values["transforms.a.class"]["errors"] == []
    wrong = {name for name, value in values.items() if value["errors"]}
    assert wrong == {
        "max.tasks",
        "transforms.a.field.pattern",
        "transforms.a.field.replacement",
    }
    assert found["errorCount"] == sum(len(value["errors"]) for value in values.values())
    assert "configuration max.tasks: Not a number" in values["max.tasks"]["errors"][0]


def test_unknown_paths_and_pages_of_other_sites_are_refused(api: Api) -> None:
    api.make("c", READS)
    unknown = api.send("GET", "/nothing")
    assert (unknown.status_code, unknown.json()["errorCode"]) == (404, 404)
    foreign = api.send("GET", "/connectors/stop/all", headers={"Sec-Fetch-Site": "cross-site"})
    assert (foreign.status_code, foreign.json()["errorCode"]) == (403, 403)
    typed = {"Sec-Fetch-Site": "none"}
    assert list(api.body("/connectors/list", headers=typed)) == ["c"]


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/getClusterInfo", Role.VIEWER),
        ("GET", "/connectors/list/", Role.VIEWER),
        ("GET", "/connectors/stop/config", Role.VIEWER),
        ("GET", "/connectors/c/tasks/0/status", Role.VIEWER),
        ("GET", "/allocated/tasks", Role.VIEWER),
        ("GET", "/plugin/list/connectors", Role.VIEWER),
        ("GET", "/plugin/config", Role.VIEWER),
        ("GET", "/connectors/c/pause", Role.OPERATOR),
        ("GET", "/connectors/resume/all", Role.OPERATOR),
        ("GET", "/connectors/c", Role.ADMIN),
        ("POST", "/connectors/list", Role.ADMIN),
        ("GET", "/connectors/status/stop", Role.ADMIN),
        ("GET", "/connectors/c/delete", Role.ADMIN),
        ("GET", "/connectors/stop/all", Role.ADMIN),
        ("GET", "/connectors/pause/all/stop", Role.ADMIN),
        ("GET", "/plugin/reload", Role.ADMIN),
        ("GET", "/plugin/config/validate", Role.ADMIN),
    ],
)
def test_what_changes_by_get_needs_more_than_a_viewer(
    method: str, path: str, needed: Role
) -> None:
    assert needed_role(method, path) is needed
