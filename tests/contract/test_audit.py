"""Whoever changes something, or is refused, is in the log: who, from where, what, and how."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from structlog.testing import capture_logs
from tests.contract.v1_client import CONFIG, V1, v1_client
from tests.unit.worker.reconciled import Reconciled
from tests.unit.worker.scripts import now

from headrace.control import Connectors
from headrace.plugins import Registry
from headrace.rest import (
    Listener,
    RateLimit,
    Role,
    Serving,
    TokenFile,
    connect_app,
    rocketmq_app,
)

pytestmark = pytest.mark.timeout(120)
SECRET = "not-to-be-told"  # noqa: S105 - a test's


@dataclass
class Asked:
    """Requests of clients of three roles, and the lines that are told of them."""

    url: str
    shown: Mapping[Role, str]
    lines: Sequence[Mapping[str, object]]

    def __call__(
        self, role: Role | None, method: str, path: str, body: object = None
    ) -> tuple[int, list[dict[str, object]]]:
        """Return the status of a request, and what the audit log has on it."""
        # Whoever wants to be taken for someone else may say so.
        headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
        if role is not None:
            headers["Authorization"] = f"Bearer {self.shown[role]}"
        seen = len(self.lines)
        url = f"{self.url}{path}"
        answer = httpx2.request(method, url, headers=headers, json=body, timeout=60)
        return answer.status_code, [told(each) for each in self.lines[seen:] if audits(each)]


def audits(line: Mapping[str, object]) -> bool:
    return "address" in line


def told(line: Mapping[str, object]) -> dict[str, object]:
    """Return a line without what every line has."""
    assert (line["address"], line["log_level"]) == ("127.0.0.1", "info")
    return {key: line[key] for key in ("event", "by", "role", "method", "path", "status")}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
def shown(tokens: TokenFile) -> Mapping[Role, str]:
    return {role: tokens.add(f"the {role}", role) for role in Role}


App = Callable[..., object]


@contextmanager
def served(
    app: App, tokens: TokenFile, shown: Mapping[Role, str], rate: RateLimit | None = None
) -> Iterator[Asked]:
    behind = Reconciled()
    connectors = Connectors(
        store=behind.wanted, task_store=behind.state_store, registry=Registry(), clock=now
    )
    listener = Listener(port=0, keys=tokens, rate=rate or RateLimit())
    with Serving(app(connectors, listener), listener) as serving, capture_logs() as lines:  # type: ignore[arg-type]  # one of ours
        serving.start()
        yield Asked(serving.url, shown, lines)


def line(event: str, role: Role | None, method: str, path: str, status: int) -> object:
    by = ("", "") if role is None else (f"the {role}", role.value)
    return {
        "event": event,
        "by": by[0],
        "role": by[1],
        "method": method,
        "path": path,
        "status": status,
    }


def test_a_change_is_told_with_who_made_it(tokens: TokenFile, shown: dict[Role, str]) -> None:
    with served(connect_app, tokens, shown) as ask:
        body = {"name": "a b/c", "config": CONFIG}
        made = ask(Role.ADMIN, "POST", "/connectors", body)
        assert made == (201, [line("asked", Role.ADMIN, "POST", "/connectors", 201)])
        path = f"/connectors/{quote('a b/c', safe='')}"
        paused = ask(Role.OPERATOR, "PUT", f"{path}/pause")
        assert paused == (202, [line("asked", Role.OPERATOR, "PUT", f"{path}/pause", 202)])
        missing = ask(Role.ADMIN, "DELETE", "/connectors/nobody")
        assert missing[1] == [line("asked", Role.ADMIN, "DELETE", "/connectors/nobody", 404)]


def test_a_request_that_only_looks_is_not_told(
    tokens: TokenFile, shown: dict[Role, str]
) -> None:
    for app, path in ((connect_app, "/connectors"), (rocketmq_app, "/connectors/list")):
        with served(app, tokens, shown) as ask:
            assert ask(Role.VIEWER, "GET", path) == (200, [])


def test_a_change_by_get_is_told_too(tokens: TokenFile, shown: dict[Role, str]) -> None:
    with served(rocketmq_app, tokens, shown) as ask:
        given = {"connector.class": CONFIG["connector.class"], "file": "/in", "topic": "t"}
        query = quote(json.dumps({**given, "password": SECRET}))
        made = ask(Role.ADMIN, "GET", f"/connectors/a?config={query}")
        assert made == (200, [line("asked", Role.ADMIN, "GET", "/connectors/a", 200)])
        for role, path in (
            (Role.OPERATOR, "/connectors/a/pause"),
            (Role.OPERATOR, "/connectors/resume/all"),
            (Role.ADMIN, "/connectors/a/stop"),
            (Role.ADMIN, "/plugin/reload"),
        ):
            assert ask(role, "GET", path) == (200, [line("asked", role, "GET", path, 200)])


@pytest.mark.parametrize("app", [connect_app, rocketmq_app])
def test_a_refused_request_is_told(tokens: TokenFile, shown: dict[Role, str], app: App) -> None:
    with served(app, tokens, shown) as ask:
        nobody = ask(None, "GET", "/connectors/a/config")
        assert nobody == (401, [line("refused", None, "GET", "/connectors/a/config", 401)])
        low = ask(Role.VIEWER, "POST", "/connectors/a", CONFIG)
        assert low == (403, [line("refused", Role.VIEWER, "POST", "/connectors/a", 403)])


def test_strangers_do_not_fill_the_log(tokens: TokenFile, shown: dict[Role, str]) -> None:
    with served(connect_app, tokens, shown, RateLimit(recorded=2)) as ask:
        long = ask(None, "GET", f"/{'a' * 5000}")
        assert long[1] == [line("refused", None, "GET", f"/{'a' * 299}…", 401)]
        lines = sum(len(ask(None, "GET", "/connectors")[1]) for _ in range(6))
        assert 1 <= lines <= 2  # one more if the minute ends meanwhile
        assert len(ask(Role.VIEWER, "POST", "/connectors", {})[1]) == 1


def test_no_line_holds_a_secret(tokens: TokenFile, shown: dict[Role, str]) -> None:
    with served(connect_app, tokens, shown) as ask:
        config = {**CONFIG, "sasl.password": SECRET}
        for role in (Role.ADMIN, Role.OPERATOR):
            ask(role, "PUT", f"/connectors/a/config?token={SECRET}", config)
        wrong = {"Authorization": f"Bearer {SECRET}"}
        httpx2.get(f"{ask.url}/connectors", headers=wrong)
        lines = [each for each in ask.lines if audits(each)]
        assert [each["status"] for each in lines] == [201, 403, 401]
        text = repr(ask.lines)
        assert SECRET not in text
        assert not any(token in text for token in shown.values())


def test_our_own_api_tells_its_changes_in_the_same_way(
    tmp_path: Path, tokens: TokenFile, shown: dict[Role, str]
) -> None:
    listener = Listener(port=0, keys=tokens)
    with v1_client(tmp_path, listener=listener) as v1, capture_logs() as lines:
        ask = Asked(v1.url, shown, lines)
        body = {"filter": {"name": ["*"]}}
        paused = ask(Role.OPERATOR, "POST", "/bulk/pause", body)
        assert paused == (200, [line("asked", Role.OPERATOR, "POST", "/v1/bulk/pause", 200)])
        refused = ask(Role.OPERATOR, "POST", "/bulk/delete", body)
        path = "/v1/bulk/delete"
        assert refused == (403, [line("refused", Role.OPERATOR, "POST", path, 403)])


@contextmanager
def changed(tokens: TokenFile, shown: Mapping[Role, str], home: Path) -> Iterator[V1]:
    """Let an admin make, stop, rewind and delete a connector; give it to a viewer."""
    with v1_client(home, listener=Listener(port=0, keys=tokens)) as v1:
        path = f"{v1.server.url}/connectors/a"
        config = {**CONFIG, "sasl.password": SECRET}
        headers = {"Authorization": f"Bearer {shown[Role.ADMIN]}"}
        with httpx2.Client(headers=headers, timeout=60) as admin:
            assert admin.put(f"{path}/config", json=config).status_code == 201
            v1.await_state("RUNNING", "a")
            assert admin.put(f"{path}/stop").status_code == 204
            v1.await_stopped("a")
            assert admin.delete(f"{path}/offsets").status_code == 200
            assert admin.delete(path).status_code == 204
        v1.http.headers["Authorization"] = f"Bearer {shown[Role.VIEWER]}"
        yield v1


def test_what_was_changed_is_kept_and_read_in_pages(
    tmp_path: Path, tokens: TokenFile, shown: dict[Role, str]
) -> None:
    with changed(tokens, shown, tmp_path) as v1:
        pages = [v1("GET", "/events?changes=true&connector=a&limit=2")]
        while pages[-1].json()["items"]:
            after = pages[-1].json()["next"]
            pages.append(v1("GET", f"/events?changes=true&connector=a&limit=2&after={after}"))
        assert not any(SECRET in page.text for page in pages)
        told = [each for page in pages for each in page.json()["items"]]
        assert [each["kind"] for each in told] == ["created", "target", "offsets", "deleted"]
        assert {each["by"] for each in told} == {"the admin@127.0.0.1"}


def test_what_was_changed_is_chosen_by_its_kind(
    tmp_path: Path, tokens: TokenFile, shown: dict[Role, str]
) -> None:
    with changed(tokens, shown, tmp_path) as v1:
        some = "kind=target&kind=deleted&kind=state&changes=true"
        found = v1("GET", f"/events?{some}").json()["items"]
        assert [each["kind"] for each in found] == ["target", "deleted"]
        with v1.events(f"after=0&{some}") as stream:
            assert [next(stream)["event"] for _ in range(2)] == ["target", "deleted"]
        for wrong in ("changes=yes", "kind=nothing"):
            assert v1("GET", f"/events?{wrong}").status_code == 422
