"""The client of a schema registry, against a real HTTP server."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from headrace.sdk import RetriableError
from headrace.sdk.errors import ConfigError
from headrace_plugins.confluent.client import (
    HttpSchemaRegistry,
    RegistrySettings,
    open_registry,
)
from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaReference,
    SchemaText,
    SchemaType,
    resolve_references,
)

CLOSED = "http://127.0.0.1:1"
STRING = SchemaText('"string"')
QUICK = {"retries.wait.ms": "1", "retries.max.wait.ms": "1", "max.retries": "1"}


@pytest.fixture(scope="module")
def shared_server() -> Iterator[HTTPServer]:
    with HTTPServer() as server:
        yield server


@pytest.fixture
def server(shared_server: HTTPServer) -> HTTPServer:
    shared_server.clear()
    return shared_server


def client(url: str, **values: str) -> HttpSchemaRegistry:
    keys = {key.replace("_", "."): value for key, value in values.items()}
    return HttpSchemaRegistry(
        RegistrySettings.parsed({"schema.registry.url": url, **QUICK, **keys})
    )


def base(server: HTTPServer) -> str:
    return server.url_for("").rstrip("/")


def answered(kind: str, server: HTTPServer) -> int:
    return sum(1 for request, _ in server.log if request.method == kind)


def test_registering_sends_what_confluent_expects_and_asks_once(server: HTTPServer) -> None:
    schema = SchemaText("{}", SchemaType.JSON, (SchemaReference("a.json", "a", 2),))
    body = {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "a.json", "subject": "a", "version": 2}],
    }
    server.expect_oneshot_request("/subjects/a/b/versions", method="POST").respond_with_json(
        {"id": 7}
    )
    registry = client(base(server))
    assert [registry.register("a/b", schema) for _ in range(2)] == [7, 7]
    request = server.log[0][0]
    assert request.environ["REQUEST_URI"].startswith("/subjects/a%2Fb/versions?")
    assert {key: value for key, value in request.json.items() if value} == body
    assert request.content_type == "application/vnd.schemaregistry.v1+json"


def test_a_schema_by_id_is_asked_for_once(server: HTTPServer) -> None:
    answer = {"schema": "syntax", "schemaType": "PROTOBUF"}
    server.expect_oneshot_request("/schemas/ids/3").respond_with_json(answer)
    registry = client(base(server))
    expected = SchemaText("syntax", SchemaType.PROTOBUF)
    assert [registry.by_id(3), registry.by_id(3)] == [expected, expected]


@pytest.mark.parametrize(("seconds", "asked"), [("60", 1), ("0", 2)])
def test_the_newest_version_is_remembered_until_its_time_is_over(
    server: HTTPServer, seconds: str, asked: int
) -> None:
    answer = {"subject": "s", "version": 1, "id": 1, "schema": '"string"'}
    server.expect_request("/subjects/s/versions/latest").respond_with_json(answer)
    registry = client(base(server), latest_cache_ttl_sec=seconds)
    assert [registry.latest("s").schema for _ in range(2)] == [STRING, STRING]
    assert answered("GET", server) == asked


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, 40401, SchemaNotFoundError),
        (404, 40403, SchemaNotFoundError),
        (404, 404, RegistryRefusedError),
        (409, 409, IncompatibleSchemaError),
        (422, 42201, InvalidSchemaError),
        (422, 42205, RegistryRefusedError),
        (401, 401, RegistryRefusedError),
        (403, 40301, RegistryRefusedError),
    ],
)
def test_each_answer_becomes_its_error(
    server: HTTPServer, status: int, code: int, kind: type[Exception]
) -> None:
    body = {"error_code": code, "message": "because"}
    server.expect_request("/subjects/s/versions").respond_with_json(body, status=status)
    with pytest.raises(kind) as caught:
        client(base(server)).register("s", STRING)
    assert caught.value.error_code in {code, 409}  # type: ignore[attr-defined]
    assert answered("POST", server) == 1


def test_what_may_pass_is_tried_again_and_then_left_to_the_caller(server: HTTPServer) -> None:
    server.expect_oneshot_request("/subjects").respond_with_json({}, status=503)
    server.expect_oneshot_request("/subjects").respond_with_json(["s"])
    assert client(base(server)).subjects() == ["s"]
    server.clear()
    server.expect_request("/subjects").respond_with_json({}, status=429)
    with pytest.raises(RetriableError, match="returned status 429"):
        client(base(server)).subjects()
    assert answered("GET", server) == 2


def test_a_url_that_is_down_is_passed_over(server: HTTPServer) -> None:
    server.expect_request("/subjects").respond_with_json([])
    registry = client(f"{CLOSED},{base(server)}", max_retries="0")
    assert registry.subjects() == []


def test_a_page_that_is_no_registry_is_no_answer(server: HTTPServer) -> None:
    server.expect_request("/subjects").respond_with_data("<html>", status=200)
    with pytest.raises(Exception, match="not respond like a schema registry"):
        client(base(server)).subjects()


@pytest.mark.parametrize(
    ("where", "values", "header"),
    [
        ("http://user:s3cret@", {}, "Basic dXNlcjpzM2NyZXQ="),
        (
            "http://",
            {
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": "user:s3cret",
            },
            "Basic dXNlcjpzM2NyZXQ=",
        ),
        (
            "http://",
            {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "s3cret"},
            "Bearer s3cret",
        ),
    ],
)
def test_secrets_are_sent_and_shown_nowhere(
    server: HTTPServer, where: str, values: dict[str, str], header: str
) -> None:
    server.expect_request("/subjects").respond_with_json({"message": "no"}, status=401)
    url = base(server).replace("http://", where)
    registry = client(url, **values)
    with pytest.raises(RegistryRefusedError) as refused:
        registry.subjects()
    assert server.log[0][0].headers["Authorization"] == header
    with pytest.raises(RetriableError) as unreachable:
        client(CLOSED.replace("http://", where), **values).subjects()
    shown = [repr(each.value) + str(each.value) for each in (refused, unreachable)]
    assert "s3cret" not in repr(registry.__getstate__()) + "".join(shown)


@pytest.mark.parametrize(
    "values",
    [
        {"schema.registry.url": "ftp://user:s3cret@host"},
        {"schema.registry.url": "http://user:s3cret@host:port"},
        {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "s3cret"},
        {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": "s3cret\r\nHost: x",
        },
    ],
)
def test_a_bad_address_is_refused_without_its_secret(values: dict[str, str]) -> None:
    config = RegistrySettings.parsed({"schema.registry.url": CLOSED, **values})
    with pytest.raises(ConfigError) as caught:
        HttpSchemaRegistry(config)
    assert "s3cret" not in str(caught.value)


def test_a_pickled_client_opens_its_own_connections(server: HTTPServer) -> None:
    server.expect_request("/subjects").respond_with_json(["s"])
    registry = client(base(server))
    registry.subjects()
    assert pickle.loads(pickle.dumps(registry)).subjects() == ["s"]  # noqa: S301 - our own


def test_without_confluents_client_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from headrace_plugins.confluent.client import HttpSchemaRegistry, RegistrySettings\n"
        f"keys = RegistrySettings.parsed({{'schema.registry.url': '{CLOSED}'}})\n"
        "HttpSchemaRegistry(keys).subjects()"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Install headrace[confluent]." in ended.stderr


def test_references_are_resolved_dependencies_first(server: HTTPServer) -> None:
    def version(subject: str, text: str, *references: str) -> None:
        answer: dict[str, Any] = {"subject": subject, "version": 1, "id": 1, "schema": text}
        uses = [{"name": name, "subject": name, "version": 1} for name in references]
        server.expect_request(f"/subjects/{subject}/versions/1").respond_with_json(
            {**answer, "references": uses}
        )

    version("b", "B", "c")
    version("c", "C")
    schema = SchemaText("A", references=(SchemaReference("b", "b", 1),))
    asked = client(base(server))
    texts = resolve_references(lambda to: asked.version(to.subject, to.version).schema, schema)
    assert list(texts.items()) == [("c", "C"), ("b", "B")]


def test_a_configuration_without_url_means_the_embedded_registry() -> None:
    config = RegistrySettings.parsed({})
    embedded = client(CLOSED)
    assert open_registry(config, embedded) is embedded
    with pytest.raises(ConfigError, match="No embedded"):
        open_registry(config, None)
