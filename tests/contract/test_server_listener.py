"""Who the server lets in, for what, how often, and from where."""

import base64
import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from headrace.cli import main
from headrace.control import Connectors
from headrace.rest import (
    Listener,
    Opening,
    RateLimit,
    Role,
    Serving,
    SharedToken,
    TokenFile,
    connect_app,
)
from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - nothing listens there, it is refused or not
CONFIG = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "topics": "lines",
    "file": "/tmp/never-written",  # noqa: S108 - nothing runs here
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenFile:
    return TokenFile(tmp_path_factory.mktemp("door") / "tokens.json")


@pytest.fixture(scope="module")
def shown(tokens: TokenFile) -> dict[Role, str]:
    """Return a token of each role."""
    return {role: tokens.add(f"the {role}", role) for role in Role}


@pytest.fixture(scope="module")
def url(connectors: Connectors, tokens: TokenFile, shown: dict[Role, str]) -> Iterator[str]:
    assert shown
    listener = Listener(port=0, keys=tokens, body_bytes=10_000, rate=RateLimit(refusals=1000))
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        yield serving.url


def asked(
    url: str, method: str, path: str, token: str = "", **given: object
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.request(method, f"{url}{path}", headers=headers, timeout=60, **given)  # type: ignore[arg-type]  # as requests have it


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/connectors", Role.VIEWER),
        ("HEAD", "/connectors", Role.VIEWER),
        ("OPTIONS", "/connectors", Role.VIEWER),
        ("GET", "/connectors/c/config", Role.VIEWER),
        ("PUT", "/connectors/c/pause", Role.OPERATOR),
        ("PUT", "/connectors/c/resume/", Role.OPERATOR),
        ("PUT", "/connectors/c/stop", Role.OPERATOR),
        ("POST", "/connectors/c/restart", Role.OPERATOR),
        ("POST", "/connectors/c/tasks/0/restart", Role.OPERATOR),
        ("PATCH", "/connectors/c/offsets", Role.OPERATOR),
        ("DELETE", "/connectors/c/offsets", Role.OPERATOR),
        ("PUT", "/connectors/c/topics/reset", Role.OPERATOR),
        ("POST", "/connectors", Role.ADMIN),
        ("PUT", "/connectors/c/config", Role.ADMIN),
        ("PATCH", "/connectors/c/config", Role.ADMIN),
        ("DELETE", "/connectors/c", Role.ADMIN),
        ("DELETE", "/connectors/stop", Role.ADMIN),
        ("DELETE", "/connectors/a%2Fstop", Role.ADMIN),
        ("PUT", "/connectors/pause/config", Role.ADMIN),
        ("PUT", "/connector-plugins/x/config/validate", Role.ADMIN),
        ("PUT", "/admin/loggers/root", Role.ADMIN),
        ("PURGE", "/connectors", Role.ADMIN),
    ],
)
def test_each_role_may_do_what_is_its_own(
    url: str, shown: dict[Role, str], method: str, path: str, needed: Role
) -> None:
    assert asked(url, method, path).status_code == 401
    for role, token in shown.items():
        refused = asked(url, method, path, token).status_code == 403
        assert refused is not role.covers(needed), role


def test_what_is_refused_is_told_in_the_form_of_the_api(
    url: str, shown: dict[Role, str]
) -> None:
    unknown = asked(url, "GET", "/connectors", "hr_wrong")
    assert unknown.json() == {"error_code": 401, "message": "Unauthorized"}
    assert "Basic" in unknown.headers["www-authenticate"]
    viewer = asked(url, "DELETE", "/connectors/c", shown[Role.VIEWER])
    told = "This requires the role admin; the viewer is viewer."
    assert (viewer.status_code, viewer.json()) == (403, {"error_code": 403, "message": told})
    large = asked(url, "POST", "/connectors", shown[Role.ADMIN], json={"name": "x" * 10_000})
    assert (large.status_code, large.json()["error_code"]) == (413, 413)


def test_old_clients_show_the_token_as_a_password(url: str, shown: dict[Role, str]) -> None:
    def status(password: str) -> int:
        return httpx2.get(
            f"{url}/connectors", auth=("anyone", password), timeout=60
        ).status_code

    assert status(shown[Role.VIEWER]) == 200
    assert status(shown[Role.VIEWER][:-1]) == status("") == 401
    broken = base64.b64encode(b"\xff\xfe").decode()
    for header in (f"Basic {broken}", "Basic !", "Basic", "Bearer", "Digest x", "Bearer \xe9"):
        answer = httpx2.get(
            f"{url}/connectors",
            headers=[(b"Authorization", header.encode("latin-1"))],
            timeout=60,
        )
        assert answer.status_code == 401


def test_a_token_in_the_address_is_no_token(url: str, shown: dict[Role, str]) -> None:
    token = shown[Role.ADMIN]
    for query in ("token", "access_token", "authorization"):
        assert asked(url, "GET", f"/connectors?{query}={token}").status_code == 401


def test_probes_need_no_token(url: str) -> None:
    assert asked(url, "GET", "/health").json()["status"] == "healthy"


def test_only_who_has_a_token_is_told_what_the_checks_found(
    url: str, shown: dict[Role, str]
) -> None:
    for token, is_told in (("", False), ("wrong", False), (shown[Role.VIEWER], True)):
        checks = asked(url, "GET", "/health", token).json()["checks"]
        assert checks
        assert all(("message" in check) == is_told for check in checks.values())


def test_probes_only_ask_and_their_bodies_are_not_read(url: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        refused = asked(url, method, "/health")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        assert refused.json()["error_code"] == 405
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as probe:
        probe.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n")
        assert probe.recv(100).startswith(b"HTTP/1.1 200")


def test_changes_name_their_caller(
    url: str, shown: dict[Role, str], connectors: Connectors
) -> None:
    token = shown[Role.ADMIN]
    assert asked(url, "PUT", "/connectors/named/config", token, json=CONFIG).status_code == 201
    [event] = [e for e in connectors.store.events() if e.connector == "named"]
    assert event.by == "the admin@127.0.0.1"


def test_a_token_that_is_taken_away_counts_no_more_at_once(url: str, tokens: TokenFile) -> None:
    other = TokenFile(tokens._file)
    token = other.add("short-lived", Role.VIEWER)
    assert asked(url, "GET", "/connectors", token).status_code == 200
    other.remove("short-lived")
    assert asked(url, "GET", "/connectors", token).status_code == 401


def test_the_file_holds_no_token_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = TokenFile(file).add("me", Role.ADMIN)
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in TokenFile(file).tokens()] == ["me"]


def test_a_broken_file_stops_the_start_and_lets_nobody_in_later(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = TokenFile(file)
    token = tokens.add("me", Role.ADMIN)
    file.write_text("[{}]")
    assert tokens.principal(token) is None
    with pytest.raises(ConfigError, match="not a list of tokens"):
        TokenFile(file)


def test_a_client_that_asks_too_often_has_to_wait(connectors: Connectors) -> None:
    listener = Listener(port=0, keys=SharedToken("t0ken"), rate=RateLimit(a_minute=3))
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        # Where a minute begins amid them, the sliding window lets another one pass.
        answers = [asked(serving.url, "GET", "/connectors", "t0ken") for _ in range(6)]
    codes = [answer.status_code for answer in answers]
    assert codes[:3] == [200] * 3
    assert codes[3:].count(429) in {2, 3}
    refused = answers[codes.index(429)]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error_code"] == 429


def test_guesses_are_slowed_down_and_lock_nobody_out(connectors: Connectors) -> None:
    listener = Listener(port=0, keys=SharedToken("t0ken"), rate=RateLimit(refusals=2))
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        # Where a minute begins amid them, the sliding window lets another one pass.
        guesses = [asked(serving.url, "GET", "/connectors", "guess") for _ in range(5)]
        codes = [answer.status_code for answer in guesses]
        assert codes[:2] == [401, 401]
        assert codes[2:].count(429) in {2, 3}
        assert asked(serving.url, "GET", "/connectors", "t0ken").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8083"}, 200),
        ({"Host": "[::1]"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "rebound.example.com"}, 403),
        ({"Host": "127.0.0.1.example.com:8083"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "https://example.com"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_without_tokens_pages_of_others_cannot_use_it_through_a_browser(
    connectors: Connectors, headers: dict[str, str], status: int
) -> None:
    listener = Listener(port=0)
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        answer = httpx2.get(f"{serving.url}/connectors", headers=headers, timeout=60)
    assert answer.status_code == status


def test_a_signal_that_comes_as_soon_as_it_says_where_it_is_ends_it_in_order(
    connectors: Connectors,
) -> None:
    listener = Listener(port=0)
    before = signal.getsignal(signal.SIGTERM)
    with Serving(connect_app(connectors, listener), listener) as serving:
        url = serving.url
        serving.run(lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(httpx2.TransportError):
            httpx2.get(url, timeout=5)
    assert signal.getsignal(signal.SIGTERM) is before


def test_others_are_let_in_only_where_they_are_known_or_it_is_said() -> None:
    with pytest.raises(ConfigError, match="no token is set"):
        Listener(host=ALL_ADDRESSES)
    assert Listener(host=ALL_ADDRESSES, anonymous=True).admits(None)
    assert Listener(host=ALL_ADDRESSES, keys=SharedToken("t")).admits(None) is None


def test_while_it_starts_and_stops_it_says_so(connectors: Connectors) -> None:
    listener, opening = Listener(port=0), Opening()
    with Serving(opening, listener) as serving:
        serving.start()
        for told in ("Worker is still starting up.", "Worker is stopping."):
            health = asked(serving.url, "GET", "/health")
            assert (health.status_code, health.headers["retry-after"]) == (503, "2")
            assert health.json() == {"status": "starting", "message": told}
            other = asked(serving.url, "POST", "/connectors", json={})
            assert (other.status_code, other.json()["message"]) == (503, told)
            with opening.opened(connect_app(connectors, listener)):
                assert asked(serving.url, "GET", "/health").status_code == 200


def own_threads() -> list[str]:
    """Return the threads of servers and workers; libraries have others, for a moment."""
    return [t.name for t in threading.enumerate() if t.name.startswith("headrace")]


def test_a_port_that_is_taken_is_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = own_threads()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["--home", str(tmp_path), "server", "--port", port, "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert error["code"] == SetupError.code
    assert port in error["problem"]
    assert own_threads() == threads
    assert not (tmp_path / "store.db").exists()


def test_an_address_of_others_is_refused_until_there_is_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(tmp_path)]
    assert main([*home, "server", "--host", ALL_ADDRESSES, "--json"]) == 2
    assert "headrace token create" in capsys.readouterr().out
    assert main([*home, "token", "create", "ci", "--role", "admin"]) == 0
    token = capsys.readouterr().out.strip()
    assert main([*home, "token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "ci", "role": "admin"}]
    assert token.startswith("hr_")
    assert main([*home, "token", "create", "ci"]) == 2
    assert main([*home, "token", "create", "other", "--role", "king"]) == 2
    assert main([*home, "token", "delete", "ci"]) == 0
    assert main([*home, "token", "delete", "ci"]) == 2
