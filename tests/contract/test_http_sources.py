"""Sources of HTTP APIs and of functions: against a real server, and in the acceptance kit."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pytest_httpserver import HTTPServer
from typing_extensions import override
from werkzeug import Request, Response

from headrace.sdk import (
    ConfigErrors,
    DeliveryGuarantee,
    Page,
    RetriableError,
    SourceConnector,
    source,
)
from headrace.sdk.config import Config, Password
from headrace.sdk.http import HttpClient, HttpError, HttpPagedSource, HttpSettings
from headrace.sdk.testing import BadConfig, CaptureAcceptance, Row, SourceDriver


def answers(server: HTTPServer, *some: Response) -> list[Request]:
    """Let a server give these answers, one after the other; return what it was asked."""
    asked: list[Request] = []
    left = iter(some)

    def answer(request: Request) -> Response:
        asked.append(request)
        return next(left)

    server.expect_request("/things").respond_with_handler(answer)
    return asked


def client(server: HTTPServer, **options: Any) -> HttpClient:
    return HttpClient(server.url_for(""), **options)


def test_a_request_that_a_busy_server_fails_is_sent_again(
    httpserver: HTTPServer,
) -> None:
    busy = [Response(status=503), Response(status=500)]
    asked = answers(httpserver, *busy, Response('{"n": 1}'))
    patient = client(httpserver, patience=timedelta(seconds=30))
    assert patient.get("things").json() == {"n": 1}
    assert len(asked) == 3


def test_it_waits_as_long_as_the_server_asks_for(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, Response(status=429, headers={"Retry-After": "1"}), Response())
    began = time.monotonic()
    client(httpserver, patience=timedelta(seconds=5)).get("things")
    assert len(asked) == 2
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("as_date", [False, True])
def test_a_longer_wait_is_left_to_the_worker(httpserver: HTTPServer, *, as_date: bool) -> None:
    end = format_datetime(datetime.now(UTC) + timedelta(seconds=1800), usegmt=True)
    after = {"Retry-After": end if as_date else "1800"}
    asked = answers(httpserver, Response(status=429, headers=after))
    with pytest.raises(RetriableError, match="429") as caught:
        client(httpserver).get("things", params={"secret": "x"})
    assert caught.value.after is not None
    assert timedelta(minutes=25) < caught.value.after <= timedelta(minutes=30)
    assert "secret" not in str(caught.value)
    assert len(asked) == 1


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x", "https://localhost/x"])
def test_no_token_goes_to_another_host(httpserver: HTTPServer, address: str) -> None:
    answers(httpserver, Response(headers={"Link": f'<{address}>; rel="next"'}))
    api = client(httpserver, token=Password("secret"))
    with pytest.raises(HttpError, match="another host"):
        list(api.pages("things"))
    with pytest.raises(HttpError, match="another host"):
        api.get(address)


def test_a_link_that_is_no_address_is_named(httpserver: HTTPServer) -> None:
    answers(httpserver, Response(headers={"Link": '<http://[::bad/>; rel="next"'}))
    with pytest.raises(HttpError, match="invalid Link"):
        list(client(httpserver).pages("things"))


@pytest.mark.parametrize(
    "text", ["9" * 30, "9" * 5000, "99999", "Fri, 31 Dec 9999 23:59:59 GMT"]
)
def test_an_absurd_wait_is_an_hour_at_most(httpserver: HTTPServer, text: str) -> None:
    answers(httpserver, Response(status=429, headers={"Retry-After": text}))
    with pytest.raises(RetriableError, match="429") as caught:
        client(httpserver, patience=timedelta(0)).get("things")
    assert (caught.value.after or timedelta(0)) <= timedelta(hours=1)


def test_a_partition_shows_no_secrets_of_the_address() -> None:
    settings = HttpSettings.parsed({"http.url": "http://bob:pass@api.test/v1?api_key=secret"})
    thing = Things.__new__(Things)
    thing.settings = settings
    assert thing.partition["url"] == "http://api.test/v1"


def test_no_header_of_the_client_follows_a_redirect_to_another_host(
    httpserver: HTTPServer,
) -> None:
    elsewhere = httpserver.url_for("/other").replace("localhost", "127.0.0.1")
    asked: list[Request] = []

    def other(request: Request) -> Response:
        asked.append(request)
        return Response()

    httpserver.expect_request("/other").respond_with_handler(other)
    answers(httpserver, Response(status=302, headers={"Location": elsewhere}))
    client(httpserver, headers={"X-Api-Key": "secret"}, token=Password("t")).get("things")
    assert "X-Api-Key" not in asked[0].headers
    assert "Authorization" not in asked[0].headers


def test_a_server_that_stays_busy_is_no_error_of_the_source(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, *[Response(status=502)] * 20)
    with pytest.raises(RetriableError, match="502 BAD GATEWAY"):
        client(httpserver, patience=timedelta(seconds=5)).get("things")
    assert 2 < len(asked) < 9


def test_a_server_that_cannot_be_reached_may_be_reached_later() -> None:
    with pytest.raises(RetriableError, match="failed: ConnectError"):
        HttpClient("http://127.0.0.1:1").get("things")


def test_what_was_possibly_done_is_not_done_again(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, Response(status=500))
    with pytest.raises(RetriableError):
        client(httpserver).request("POST", "things", json={"n": 1})
    assert len(asked) == 1


def test_what_was_certainly_not_done_is_done_again(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, Response(status=503), Response())
    patient = client(httpserver, patience=timedelta(seconds=30))
    patient.request("POST", "things", json={"n": 1})
    assert [request.get_json() for request in asked] == [{"n": 1}] * 2


def test_a_refusal_is_shown(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, Response("no such thing", status=404))
    with pytest.raises(HttpError, match="404 NOT FOUND: no such thing") as caught:
        client(httpserver).get("things")
    assert caught.value.status == 404
    assert len(asked) == 1


def test_no_more_requests_are_sent_than_the_rate_allows(httpserver: HTTPServer) -> None:
    asked = answers(httpserver, *[Response() for _ in range(5)])
    slow = client(httpserver, rate_limit="2/second", patience=timedelta(seconds=5))
    began = time.monotonic()
    for _ in range(5):
        slow.get("things")
    assert time.monotonic() - began >= 1.9
    assert len(asked) == 5


def test_a_rate_that_needs_a_long_wait_is_left_to_the_worker(httpserver: HTTPServer) -> None:
    answers(httpserver, Response(), Response())
    slow = client(httpserver, rate_limit="1/hour")
    slow.get("things")
    with pytest.raises(RetriableError, match="1 per 1 hour") as caught:
        slow.get("things")
    assert caught.value.after is not None
    assert caught.value.after > timedelta(minutes=50)


def test_pages_follow_the_links_of_the_answers(httpserver: HTTPServer) -> None:
    link = {"Link": '</things?page=2>; rel="next"'}
    asked = answers(httpserver, Response("[1]", headers=link), Response("[2]"))
    paged = client(httpserver, token=Password("abc"), headers={"X-Team": "data"})
    assert [page.json() for page in paged.pages("things", params={"size": "1"})] == [[1], [2]]
    assert [dict(request.args) for request in asked] == [{"size": "1"}, {"page": "2"}]
    assert {request.headers["Authorization"] for request in asked} == {"Bearer abc"}
    assert {request.headers["X-Team"] for request in asked} == {"data"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("http.url", "ftp://x"), ("http.url", "x"), ("http.rate.limit", "often")],
)
def test_settings_that_are_wrong_are_named(key: str, value: str) -> None:
    with pytest.raises(ConfigErrors, match=f"{key}: Invalid"):
        HttpSettings.parsed({"http.url": "http://x", key: value})


class Things(HttpPagedSource):
    """Reads pages of at most three things, which grow."""

    first = "things"

    @override
    def rows(self, answer: httpx2.Response) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = answer.json()
        return found


class ThingSource(SourceConnector):
    """Reads the things of an API."""

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    settings: HttpSettings

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[Things]:
        return Things


@source(cursor="id", settings=HttpSettings, version="1.0")
def things(settings: HttpSettings, after: int | None) -> Iterator[Mapping[str, Any]]:
    """Reads the things of an API, in a function."""
    client = HttpClient.of(settings)
    try:
        answer = client.get("things", params={"from": str(0 if after is None else after + 1)})
        yield from answer.json()
    finally:
        client.close()


class Api:
    """An API of things that answers every third request with an error."""

    def __init__(self, server: HTTPServer) -> None:
        self.things: list[Row] = []
        self.requests = count(1)
        self.url = server.url_for("")
        server.expect_request("/things").respond_with_handler(self.answer)

    def answer(self, request: Request) -> Response:
        if next(self.requests) % 3 == 0:
            return Response(status=503, headers={"Retry-After": "0"})
        first = int(request.args.get("from", 0))
        some = self.things[first : first + 3]
        link = {"Link": f'</things?from={first + len(some)}>; rel="next"'}
        return Response(json.dumps(some), headers=link)


class ApiDriver(SourceDriver):
    connector: type[SourceConnector] = ThingSource

    def __init__(self, server: HTTPServer) -> None:
        self.api = Api(server)

    @override
    def config(self) -> Mapping[str, str]:
        return {"http.url": self.api.url}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [BadConfig({"http.url": "x"}, "http.url")]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        self.api.things += rows


class FunctionDriver(ApiDriver):
    connector = things


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer() as server:
        yield server


class TestPagedApi(CaptureAcceptance):
    @pytest.fixture(autouse=True)
    def _api(self, server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        # Every third request fails, and each may take long on a busy machine.
        defaults: Any = HttpClient.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "patience", timedelta(seconds=30))

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return ApiDriver(self.server)


class TestFunction(TestPagedApi):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return FunctionDriver(self.server)


def test_a_page_that_leads_to_itself_is_asked_for_again(httpserver: HTTPServer) -> None:
    api = Api(httpserver)
    task = ThingSource.task(ThingSource.config_def().parse({"http.url": api.url}))
    assert isinstance(task, Things)
    assert task.page(None) == Page([], f"{api.url}things?from=0")
    assert task.page(f"{api.url}things?from=0") is None
    api.things.append({"id": 0})
    assert task.page(f"{api.url}things?from=0") == Page([{"id": 0}], f"{api.url}things?from=1")
    task.stop()
