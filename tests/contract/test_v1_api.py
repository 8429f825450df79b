"""Our own REST API: what every part of it keeps, and its connectors."""

import json
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx2
import pytest
from pydantic import SecretStr
from tests.contract.connect_server import Server, serving
from tests.contract.v1_client import CONFIG, SINK, SINKING, V1
from tests.unit.worker.scripts import Told, now
from tests.waiting import until

from headrace.control import Bulk, BulkAction, ConnectorFilter
from headrace.model import Counts
from headrace.rest import Listener, Workbench, server_app
from headrace.runtime.app import Runtime
from headrace.sdk import Position, Schema, SourceError
from headrace.settings import Settings
from headrace.store import ConnectorNotFoundError, ConnectorStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp

pytestmark = pytest.mark.timeout(120)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROBLEM = {
    *("type", "title", "status", "detail", "instance"),
    *("code", "field", "problem", "fix", "errors"),
}


def told(response: httpx2.Response, status: int) -> dict[str, object]:
    """Return a problem, whose form is always the same."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = response.json()
    assert problem.keys() == PROBLEM
    assert problem["status"] == status
    assert problem["type"] == f"urn:headrace:problem:{problem['code']}"
    assert problem["errors"]
    return problem


def test_what_is_not_there_is_a_problem(v1: V1) -> None:
    missing = told(v1("GET", "/connectors/a%2Fb"), 404)
    assert missing["code"] == "connector.not_found"
    assert missing["problem"] == "There is no connector a/b."
    assert missing["instance"] == "/v1/connectors/a%2Fb"
    assert told(v1("GET", "/nowhere"), 404)["code"] == "request.not_found"
    assert told(v1("GET", ""), 404)["instance"] == "/v1"


def test_a_method_that_is_not_served_is_answered_with_those_that_are(v1: V1) -> None:
    refused = v1("DELETE", "/connectors")
    assert told(refused, 405)["code"] == "request.method_not_allowed"
    assert refused.headers["allow"] == "GET"


def test_a_request_that_is_not_understood_is_told_all_that_is_wrong(v1: V1) -> None:
    problem = told(v1("GET", "/connectors?limit=0&kind=x&what=1"), 422)
    assert isinstance(problem["errors"], list)
    assert {each["field"] for each in problem["errors"]} == {"limit", "kind.0", "what"}
    assert problem["code"] == "request.invalid"


def test_a_body_that_is_too_large_is_a_problem(v1: V1) -> None:
    large = v1.http.put(f"{v1.url}/connectors", content=b"x" * (9 * 1024 * 1024))
    assert told(large, 413)["code"] == "request.content_too_large"


def test_the_other_api_stays_as_it_is(v1: V1) -> None:
    root = v1.server.url
    assert v1.http.get(f"{root}/v1x").json()["error_code"] == 404
    assert v1.http.get(f"{root}/openapi.json").status_code == 404


def test_the_description_names_the_problem_for_every_refusal(v1: V1) -> None:
    described = v1("GET", "/openapi.json").json()
    assert {"Problem", "Fault"} <= described["components"]["schemas"].keys()
    for path, operations in described["paths"].items():
        assert path.startswith("/v1/")
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                refusal = {"application/problem+json"}
                answers = {"application/json", "text/event-stream"}
                kinds = {*answer["content"]}
                assert kinds == refusal if status >= "400" else kinds < answers, path


def test_a_connector_is_shown_with_its_tasks(v1: V1) -> None:
    v1.make("a/b")
    shown = v1("GET", f"/connectors/{quote('a/b', safe='')}").json()
    [task] = shown["tasks"]
    assert (task["task"], task["state"], task["trace"]) == (0, "RUNNING", None)
    assert (task["next_try"], task["restarts"]) == (None, 0)
    assert (shown["name"], shown["kind"], shown["plugin"]) == ("a/b", "source", "file")
    assert (shown["state"], shown["target"]) == ("RUNNING", "RUNNING")
    assert shown["config"] == {**CONFIG, "name": "a/b"}
    assert shown["delivery"] in {"exactly_once", "at_least_once"}


def test_connectors_are_chosen_by_what_is_known_of_them(v1: V1) -> None:
    for name in ("east.a", "east.b", "west.a"):
        v1.make(name)
    v1.make("out", **SINKING)
    v1.server.connectors.set_target("west.a", v1.paused, "test")
    v1.await_state("PAUSED", "west.a")
    assert v1.names("name=east.*") == ["east.a", "east.b"]
    assert v1.names("name=east.a&name=w*") == ["east.a", "west.a"]
    assert v1.names("kind=sink") == ["out"]
    assert v1.names("state=PAUSED") == ["west.a"]
    assert v1.names("task_state=RUNNING&kind=source") == ["east.a", "east.b"]
    assert v1.names(f"plugin={SINK}") == ["out"]
    assert v1.names("plugin=file&name=EAST*") == []


def test_pages_follow_each_other_by_name(v1: V1) -> None:
    for name in ("a", "b", "c"):
        v1.make(name)
    first = v1("GET", "/connectors?limit=2").json()
    assert ([each["name"] for each in first["items"]], first["total"]) == (["a", "b"], 3)
    assert first["next"] == "b"
    last = v1("GET", "/connectors?limit=2&after=b").json()
    assert ([each["name"] for each in last["items"]], last["next"]) == (["c"], None)


def test_a_bulk_action_tells_what_it_would_do_and_does_it(v1: V1) -> None:
    for name in ("east.a", "east.b", "west.a"):
        v1.make(name)
    east = {"name": ["east.*"]}
    dry = v1("POST", "/bulk/pause", {"filter": east, "dry_run": True}).json()
    outcomes = [(each["name"], each["outcome"]) for each in dry["results"]]
    assert outcomes == [("east.a", "would"), ("east.b", "would")]
    assert (dry["done"], dry["failed"]) == (0, 0)
    assert v1.names("state=RUNNING") == ["east.a", "east.b", "west.a"]
    done = v1("POST", "/bulk/pause", {"filter": east}).json()
    assert [(each["outcome"], each["error"]) for each in done["results"]] == [
        ("done", None)
    ] * 2
    v1.await_state("PAUSED", "east.a")
    v1("POST", "/bulk/resume", {"filter": {"state": ["PAUSED"]}})
    v1.await_state("RUNNING", "east.a")
    v1("POST", "/bulk/stop", {"filter": {"name": ["west.a"]}})
    until(lambda: v1.names("state=STOPPED") == ["west.a"])
    gone = v1("POST", "/bulk/delete", {"filter": {"name": ["*"]}}).json()
    assert gone["done"] == 3
    assert v1.names("") == []


def test_a_bulk_action_on_everything_must_say_so(v1: V1) -> None:
    v1.make("a")
    unsaid: list[object] = [None, {}, {"name": []}, {"name": None}]
    for filter_ in unsaid:
        asked = {"filter": filter_}
        assert told(v1("POST", "/bulk/delete", asked), 422)["code"] == "request.invalid"
    assert told(v1("POST", "/bulk/delete", {}), 422)["field"] == "filter"
    misspelt = told(v1("POST", "/bulk/delete", {"filter": {"nme": ["b"]}}), 422)
    assert misspelt["field"] == "filter.nme"
    assert v1.names("") == ["a"]


def test_a_bulk_restart_takes_what_has_failed(v1: V1) -> None:
    v1.make("a")
    v1.make("b")
    v1.server.newest("a", 0).steps = [SourceError("gone")]
    until(lambda: v1.names("task_state=FAILED") == ["a"])
    asked = {"filter": {"task_state": ["FAILED"]}, "only_failed": True}
    assert [each["name"] for each in v1("POST", "/bulk/restart", asked).json()["results"]] == [
        "a"
    ]
    v1.await_state("RUNNING", "a")


def test_one_that_fails_does_not_keep_a_bulk_action_from_the_others(v1: V1) -> None:
    v1.make("a")
    v1.make("b")
    connectors = v1.server.connectors

    def delete_another() -> None:
        if len(connectors.names()) == 2:
            connectors.delete("b", "another")

    racing = replace(connectors, changed=delete_another)
    plan = Bulk(action=BulkAction.PAUSE)
    first, second = plan.run(racing, ConnectorFilter(), "test", dry=False)
    assert (first.done, second.done) == (True, False)
    assert isinstance(second.error, ConnectorNotFoundError)


def test_counts_are_told_by_task_with_their_balance(v1: V1) -> None:
    v1.make("a")
    v1.make("b")
    state = v1.server.state_store
    counts = Counts(
        read=6, written=3, filtered=2, rejected=1, filters={"f": 2}, causes={"TASK_PUT E": 1}
    )
    [lease] = state.leases("a")
    start, end = Position(), Position.of({"file": "a"}, {"line": 6})
    batch = state.begin_batch(lease.task, lease.epoch, start, end, NOW)
    begun = v1("GET", "/connectors/a/tasks/0/batches").json()
    assert [(each["state"], each["counts"]) for each in begun] == [("begun", None)]
    state.finish_batch(lease.task, lease.epoch, batch.id, counts, NOW)
    shown = v1("GET", "/connectors/a/counts").json()
    assert shown["balance"] == "read = written + filtered + rejected"
    assert shown["total"] == shown["tasks"][0]["counts"]
    assert shown["total"]["balanced"]
    assert [shown["total"][name] for name in ("read", "written", "filtered")] == [6, 3, 2]
    assert (shown["total"]["filters"], shown["total"]["causes"]) == (
        {"f": 2},
        {"TASK_PUT E": 1},
    )
    later = v1("GET", "/connectors/a/counts?since=2026-01-02T00:00:00Z").json()
    assert later["total"]["read"] == 0
    listed = v1("GET", "/counts").json()
    assert [(each["name"], each["total"]["read"]) for each in listed] == [("a", 6), ("b", 0)]
    [one] = v1("GET", "/connectors/a/tasks/0/batches").json()
    assert one["end"] == [{"partition": {"file": "a"}, "offset": {"line": 6}}]
    assert one["counts"] == shown["total"]


def test_a_configuration_goes_back_to_one_that_it_was(v1: V1) -> None:
    v1.make("a")
    changed = {**CONFIG, "file": "/other", "batch.max.rows": "5"}
    v1.server.connectors.configure("a", changed, "ann")
    versions = v1("GET", "/connectors/a/versions").json()
    assert [(each["version"], each["by"]) for each in versions] == [(2, "ann"), (1, "test")]
    assert versions[0]["changed"] == ["batch.max.rows", "file"]
    diff = v1("GET", "/connectors/a/versions/diff?before=1&after=2").json()
    assert diff["changes"] == [
        {"key": "batch.max.rows", "before": None, "after": "5"},
        {"key": "file", "before": "/in", "after": "/other"},
    ]
    assert v1("GET", "/connectors/a/versions/1").json()["config"]["file"] == "/in"
    restored = v1("POST", "/connectors/a/versions/1/restore").json()
    assert restored == {"name": "a", "version": 3, "restored": 1}
    assert v1("GET", "/connectors/a").json()["config"] == {**CONFIG, "name": "a"}
    missing = told(v1("GET", "/connectors/a/versions/9"), 404)
    assert missing["code"] == "connector.version_not_found"


def test_events_are_paged_and_chosen_by_connector(v1: V1) -> None:
    before = v1.server.wanted.last_event()
    v1.make("one")
    v1.make("paged")
    page = v1("GET", f"/events?after={before}&connector=paged&limit=1").json()
    assert [(each["connector"], each["kind"]) for each in page["items"]] == [
        ("paged", "created")
    ]
    assert page["items"][0]["id"] == page["next"]
    rest = v1("GET", f"/events?after={page['next']}&connector=paged").json()
    assert {each["kind"] for each in rest["items"]} == {"state"}
    assert {each["task"] for each in rest["items"]} == {None, 0}
    assert v1("GET", f"/events?after={rest['next']}&connector=paged").json() == {
        "items": [],
        "next": rest["next"],
    }


def test_a_stream_goes_on_after_the_event_that_was_seen(v1: V1) -> None:
    # A name of its own: how the connectors of other tests ended may be told yet.
    before = v1.server.wanted.last_event()
    with v1.events(f"after={before}&connector=followed") as stream:
        v1.make("followed")
        v1.make("other")
        seen = [next(stream) for _ in range(2)]
    assert [each["event"] for each in seen] == ["created", "state"]
    assert json.loads(seen[0]["data"])["connector"] == "followed"
    header = {"Last-Event-ID": seen[0]["id"]}
    with v1.events("after=0&connector=followed", headers=header) as stream:
        assert next(stream) == seen[1]


def test_a_client_has_no_more_streams_open_than_it_may(v1: V1) -> None:
    with ExitStack() as opened:
        for _ in range(20):
            stream = opened.enter_context(v1.http.stream("GET", f"{v1.url}/events/stream"))
            assert stream.status_code == 200
        refused = v1("GET", "/events/stream?seconds=0")
        assert told(refused, 503)["code"] == "server.busy"
        assert refused.headers["Retry-After"]
    # Those that are closed count no more.
    until(lambda: v1("GET", "/events/stream?seconds=0").status_code == 200)


def test_a_stream_without_a_place_begins_now_and_ends_when_told(v1: V1) -> None:
    v1.make("a")
    answer = v1("GET", "/events/stream?seconds=0")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "data:" not in answer.text
    assert told(v1("GET", "/events/stream?after=x"), 422)["field"] == "after"


def test_a_backup_is_a_store_of_its_own(v1: V1) -> None:
    v1.make("a")
    made = v1("POST", "/store/backups")
    [event] = v1("GET", "/events?kind=backup&changes=true").json()["items"]
    assert (event["connector"], event["by"]) == ("", "anonymous@127.0.0.1")
    assert event["detail"]["file"] == made.json()["file"]
    assert made.status_code == 201
    shown = made.json()
    assert Path(shown["file"]).parent == v1.home / "backups"
    assert v1("GET", "/store/backups").json()[0] == shown
    with closing(ConnectorStore(Path(shown["file"]))) as copy:
        assert [each.name for each in copy.connectors()] == ["a"]
    assert Path(shown["file"]).stat().st_mode & 0o077 == 0


def test_schemas_of_streams_are_told_with_their_history(v1: V1) -> None:
    v1.make("a")
    state = v1.server.state_store
    first = Schema.struct({"id": Schema.int32()})
    second = Schema.struct({"id": Schema.int64(), "name": Schema.string(optional=True)})
    for schema in (first, second):
        state.put_schema("a", "people", schema)
    [stream] = v1("GET", "/connectors/a/schemas").json()
    assert (stream["stream"], [v["version"] for v in stream["versions"]]) == ("people", [2, 1])
    fields = stream["versions"][0]["value"]["type"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [
        ("id", "long"),
        ("name", "string"),
    ]


@pytest.mark.parametrize(
    "path", ["/topics/none/schemas", "/topics/..%2F../schemas", "/dead-letters/none"]
)
def test_a_topic_that_is_not_there_is_not_found(v1: V1, path: str) -> None:
    assert told(v1("GET", path), 404)["code"] == "topic.not_found"


def test_what_is_wrong_with_a_configuration_is_told_before_it_is_tried(v1: V1) -> None:
    wrong = {"connector.class": SINK, "topics": "lines", "tasks.max": "many"}
    problem = told(v1("POST", "/preview", {"config": wrong}), 422)
    assert problem["code"] == "config.several_invalid"
    assert isinstance(problem["errors"], list)
    assert "tasks.max" in {each["field"] for each in problem["errors"]}
    none = told(v1("POST", "/transforms/try", {"config": {}, "records": []}), 422)
    assert isinstance(none["errors"], list)
    assert none["errors"][0]["field"] == "transforms"


def test_a_store_in_postgresql_says_who_backs_it_up(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, store_url=SecretStr("postgresql://nobody@127.0.0.1:1/none")
    )

    def app(server: Server, listener: Listener) -> "ASGIApp":
        runtime = Runtime(settings, server.state_store)
        bench = Workbench(runtime, Told(), now)
        return server_app(server.connectors, runtime.jobs, bench, listener)

    with serving(app=app) as server:
        problem = told(httpx2.post(f"{server.url}/v1/store/backups"), 409)
    assert problem["code"] == "store.backup_not_supported"
    assert problem["fix"] == "Use pg_dump."


def test_a_client_that_goes_is_no_error(v1: V1, capsys: pytest.CaptureFixture[str]) -> None:
    v1.make("watched")
    for _ in range(20):
        with v1.events("after=0") as stream:
            next(stream)
    assert v1("GET", "/events").status_code == 200
    assert "a request failed" not in capsys.readouterr().out


@pytest.mark.long
def test_a_stream_in_which_nothing_happens_is_kept_alive(v1: V1) -> None:
    assert ": ping" in v1("GET", "/events/stream?seconds=17&connector=nobody").text


def test_a_loggers_level_is_an_event(v1: V1) -> None:
    seen = v1("GET", "/events?limit=1000").json()["next"]
    level = {"level": "INFO"}
    assert (
        v1.http.put(f"{v1.server.url}/admin/loggers/some.tests", json=level).status_code == 200
    )
    [event] = v1("GET", f"/events?after={seen}&kind=logger").json()["items"]
    assert event["detail"] == {"logger": "some.tests", "level": "INFO"}
