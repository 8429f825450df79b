"""The Python client, against the real API over a store, without Spark."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import httpx2
import pytest
from pytest_httpserver import HTTPServer
from tests.contract.connect_server import CONFIG, SINKING, SOURCE, Server
from tests.waiting import until
from typing_extensions import override

from headrace.client import (
    AccessDeniedError,
    Client,
    ConflictError,
    ConnectorFailedError,
    ConnectorStatus,
    Goal,
    NotThereError,
    OffsetInfo,
    ServerError,
    ServerUnreachableError,
    TaskHealth,
    TooLateError,
    Wait,
)
from headrace.client.http import Address, Http
from headrace.model import TaskId
from headrace.sdk import ConfigError, ConfigErrors, Position, SourceError

pytestmark = pytest.mark.timeout(120)
TOKEN = "s3cret"  # noqa: S105 - a test's


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


def waiting(client: Client, goal: Goal, **values) -> Wait:
    short = timedelta(milliseconds=20)
    given = {"every": short, "steady": short, "stale": short, **values}
    return Wait(client=client, goal=goal, **given)


def test_a_connector_is_created_shown_changed_and_deleted(client: Client) -> None:
    made = client.create("a/b ä", CONFIG)
    assert (made.name, made.kind, made.config["file"]) == ("a/b ä", "source", "/in")
    waiting(client, Goal.RUNNING).until(["a/b ä"])
    assert client.names() == ["a/b ä"]
    [task] = client.status("a/b ä").tasks
    assert (task.number, task.state, task.worker) == (0, "RUNNING", "w1:8083")
    assert client.task_configs("a/b ä") == {0: {"task.class": "Script", "part": "0"}}
    assert client.topics("a/b ä") == ["lines"]
    client.change("a/b ä", {"batch.max.rows": "5", "topic": "other"})
    assert client.change("a/b ä", {"batch.max.rows": None}).config["topic"] == "other"
    assert client.configure("a/b ä", CONFIG).config == {**CONFIG, "name": "a/b ä"}
    info, status = client.overview()["a/b ä"]
    assert (info.kind, status.name) == ("source", "a/b ä")
    client.delete("a/b ä")
    waiting(client, Goal.GONE).until(["a/b ä"])
    assert client.infos() == {}


class Scripted:
    """A server that shows one status after the other; the last one stays."""

    def __init__(self, *statuses: ConnectorStatus) -> None:
        self.statuses = list(statuses)

    def status(self, _name: str) -> ConnectorStatus:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def test_how_tasks_ended_before_is_no_failure_of_those_that_begin() -> None:
    def shown(state: str, task: str) -> ConnectorStatus:
        health = TaskHealth(number=0, state=task, trace="old" if task == "FAILED" else None)
        return ConnectorStatus("c", "sink", state, tasks=(health,))

    late, failed = shown("STOPPED", "FAILED"), shown("RUNNING", "FAILED")
    before = [late] * 5 + [failed]
    good = Scripted(*before, shown("RUNNING", "RUNNING"))
    waited = waiting(good, Goal.RUNNING, steady=timedelta(seconds=0.2))  # type: ignore[arg-type]
    assert waited.until(["c"])["c"] == shown("RUNNING", "RUNNING")
    with pytest.raises(ConnectorFailedError, match="old"):
        waiting(Scripted(*before), Goal.RUNNING).until(["c"])  # type: ignore[arg-type]


def test_connectors_are_paused_stopped_resumed_and_restarted(client: Client) -> None:
    client.create("a", CONFIG)
    client.create("b", SINKING, state="PAUSED")
    waiting(client, Goal.PAUSED).until(["b"])
    for change, goal in (
        (client.pause, Goal.PAUSED),
        (client.stop, Goal.STOPPED),
        (client.resume, Goal.RUNNING),
        (client.restart, Goal.RUNNING),
    ):
        wait = waiting(client, goal)
        wait.started(["a", "b"])
        change("a")
        change("b")
        found = wait.until(["a", "b"])
        assert {each.state for each in found.values() if each} == {goal.value}
    client.restart_task("a", 0)
    with pytest.raises(NotThereError, match="a has no task 7"):
        client.restart_task("a", 7)


def test_a_failure_is_waited_for_no_longer(client: Client, server: Server) -> None:
    server.broken["a"] = SourceError("its folder is gone")
    client.create("a", CONFIG)
    with pytest.raises(ConnectorFailedError, match="its folder is gone") as caught:
        waiting(client, Goal.RUNNING).until(["a"])
    assert caught.value.field == "a"
    assert list(client.status("a").failures) == ["a"]


def test_an_old_failure_is_no_reason_to_give_up_on_a_restart(
    client: Client, server: Server
) -> None:
    server.broken["a"] = SourceError("its folder is gone")
    client.create("a", CONFIG)
    until(lambda: client.status("a").state == "FAILED")
    del server.broken["a"]
    wait = waiting(client, Goal.RUNNING, stale=timedelta(seconds=60))
    wait.started(["a"])
    client.restart("a")
    wait.until(["a"])


def test_what_does_not_come_in_time_is_said(client: Client) -> None:
    client.create("a", CONFIG, state="STOPPED")
    with pytest.raises(TooLateError, match="a is STOPPED without tasks"):
        waiting(client, Goal.PAUSED, within=timedelta(seconds=0.5)).until(["a"])
    with pytest.raises(NotThereError):
        waiting(client, Goal.RUNNING).until(["b"])


def test_every_mistake_of_a_configuration_is_told_with_its_key(client: Client) -> None:
    wrong = {**CONFIG, "tasks.max": "many", "transforms": "x"}
    for act in (client.create, client.configure):
        with pytest.raises(ConfigErrors) as caught:
            act("a", wrong)
        fields = {error.field for error in caught.value.errors}
        assert {"tasks.max", "transforms.x.type"} <= fields
    client.create("a", CONFIG)
    with pytest.raises(ConfigErrors, match=r"tasks\.max"):
        client.change("a", {"tasks.max": "many"})
    with pytest.raises(ConfigErrors, match=r"connector\.class"):
        client.create("b", {"file": "x"})
    assert client.validate({**CONFIG, "name": "a"}).errors == ()
    assert client.validate({}).errors[0].field == "connector.class"


def test_refusals_have_kinds_and_near_names(client: Client) -> None:
    client.create("orders-1", CONFIG)
    with pytest.raises(ConflictError, match="already exists"):
        client.create("orders-1", CONFIG)
    with pytest.raises(NotThereError) as caught:
        client.pause("order-1")
    assert caught.value.fix == "Did you mean orders-1?"


def test_offsets_are_shown_and_changed(client: Client, server: Server) -> None:
    client.create("a", CONFIG, state="STOPPED")
    waiting(client, Goal.STOPPED).until(["a"])
    client.set_offsets("a", [OffsetInfo({"filename": "/in"}, {"position": 7})])
    assert client.offsets("a") == [OffsetInfo({"filename": "/in"}, {"position": 7})]
    assert server.state_store.positions("a") == {
        TaskId("a", 0): Position().moved({"filename": "/in"}, {"position": 7})
    }
    client.reset_offsets("a")
    assert client.offsets("a") == []


def test_plugins_and_loggers_are_listed(client: Client) -> None:
    assert SOURCE in {each.class_name for each in client.plugins()}
    kinds = {each.kind for each in client.plugins(only_connectors=False)}
    assert {"source", "sink", "transformation", "predicate", "converter"} <= kinds
    assert "file" in {key["name"] for key in client.plugin_keys(SOURCE)}
    assert "root" in {each.name for each in client.loggers()}
    assert client.about()["version"]


def test_a_server_that_is_not_there_is_told_with_how_to_start_one() -> None:
    with (
        Client("http://127.0.0.1:1") as nobody,
        pytest.raises(ServerUnreachableError, match="headrace server"),
    ):
        nobody.names()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, "<html>hello</html>", ServerUnreachableError),
        (404, "<html>nothing</html>", ServerUnreachableError),
        (401, "{}", AccessDeniedError),
        (
            403,
            '{"title": "Forbidden", "problem": "A viewer may not do that."}',
            AccessDeniedError,
        ),
    ],
)
def test_what_is_no_server_and_who_is_not_let_in_are_told(
    httpserver: HTTPServer, status: int, body: str, kind: type[Exception]
) -> None:
    httpserver.expect_request("/connectors").respond_with_data(body, status=status)
    with (
        Client(httpserver.url_for(""), token=TOKEN) as client,
        pytest.raises(kind) as caught,
    ):
        client.names()
    assert TOKEN not in str(caught.value)


def test_the_token_is_shown_as_a_bearer_token(httpserver: HTTPServer) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    httpserver.expect_request("/connectors", headers=headers).respond_with_json(["a"])
    with Client(httpserver.url_for("/"), token=TOKEN) as client:
        assert client.names() == ["a"]
        assert TOKEN not in repr(client.http.address)


@pytest.mark.parametrize("url", ["127.0.0.1:8083", "ftp://x", "http://me:pass@127.0.0.1"])
def test_an_address_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Client(url)
    assert "pass@" not in str(caught.value)


def test_a_request_that_is_put_off_is_sent_again(httpserver: HTTPServer) -> None:
    put_off = {"Retry-After": "0"}
    for status in (503, 429):
        httpserver.expect_ordered_request("/connectors", "POST").respond_with_data(
            "", status, put_off
        )
    httpserver.expect_ordered_request("/connectors", "POST").respond_with_json(
        {"name": "a", "config": {}, "tasks": [], "type": "source"}
    )
    with Client(httpserver.url_for("/")) as client:
        assert client.create("a", CONFIG).name == "a"


def test_a_request_is_not_put_off_for_longer_than_an_answer_may_take(
    httpserver: HTTPServer,
) -> None:
    starting = {"message": "Worker is still starting up."}
    httpserver.expect_request("/connectors").respond_with_json(
        starting, 503, {"Retry-After": "3600"}
    )
    with (
        Client(httpserver.url_for("/")) as client,
        pytest.raises(ServerError, match="still starting"),
    ):
        client.names()


def test_threads_that_begin_at_once_share_their_connections() -> None:
    both = threading.Barrier(2)
    opened: list[str] = []

    class Slow(Http):
        @override
        def _open(self) -> httpx2.Client:
            opened.append(self.address.url)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # for another one that opens too
            return super()._open()

    http = Slow(Address())
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(http.connected) for _ in range(2))
        assert first.result() is second.result()
    assert len(opened) == 1
    http.close()
