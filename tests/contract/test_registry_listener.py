"""Who the served registry lets in, over what, and with how much."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.registry_server import served
from tests.self_signed import write_certificate

from headrace.cli import main
from headrace.rest import Listener, SharedToken, Tls
from headrace.sdk import ConfigError
from headrace_plugins.confluent.client import HttpSchemaRegistry, RegistrySettings
from headrace_plugins.confluent.schema_registry import SchemaText

INT = SchemaText('"int"')
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there, it is refused or not


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a certificate of this machine, signed by itself, and its key."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def client(url: str, **files: Path) -> HttpSchemaRegistry:
    values = {"schema.registry.url": url, "max.retries": "0"}
    for name, file in files.items():
        values[f"schema.registry.ssl.{name}.location"] = str(file)
    return HttpSchemaRegistry(RegistrySettings.parsed(values))


@pytest.fixture
def small() -> Iterator[str]:
    with served(
        listener=Listener(port=0, keys=SharedToken("t0ken"), body_bytes=1000)
    ) as serving:
        yield serving.url


def test_clients_that_trust_its_certificate_use_it_and_others_do_not(pem: Path) -> None:
    with served(listener=Listener(port=0, tls=Tls(pem))) as serving:
        assert serving.url.startswith("https://")
        registry = client(serving.url, ca=pem)
        assert registry.register("s", INT) == 1
        registry.close()
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{serving.url}/subjects", timeout=60)


def test_clients_have_to_show_a_certificate_where_that_is_asked_for(pem: Path) -> None:
    with served(listener=Listener(port=0, tls=Tls(pem, client_ca=pem))) as serving:
        registry = client(serving.url, ca=pem, certificate=pem)
        assert registry.register("s", INT) == 1
        registry.close()
        stranger = client(serving.url, ca=pem)
        with pytest.raises(Exception, match=r"."):
            stranger.subjects()
        stranger.close()


def test_commands_show_the_certificate_of_the_settings(
    pem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headrace.toml"
    with served(listener=Listener(port=0, tls=Tls(pem, client_ca=pem))) as serving:

        def subjects(**settings: Path) -> int:
            told = {"home": tmp_path / "home", "registry_ssl_ca": pem, **settings}
            file.write_text("".join(f"{key} = '{value}'\n" for key, value in told.items()))
            return main(
                ["--config", str(file), "registry", "subjects", "--json", "--url", serving.url]
            )

        assert subjects(registry_ssl_client_certificate=pem) == 0
        assert capsys.readouterr().out == "[]\n"
        pair = {"registry_ssl_client_certificate": pem, "registry_ssl_client_key": pem}
        assert subjects(**pair) == 0
        assert subjects() != 0


def test_it_listens_to_others_only_where_they_must_prove_who_they_are(pem: Path) -> None:
    for tls in (None, Tls(pem)):
        with pytest.raises(ConfigError, match="no token"):
            Listener(host=EVERYWHERE, tls=tls)
    assert Listener(host=EVERYWHERE, tls=Tls(pem, client_ca=pem)).keys is None
    assert Listener(host=EVERYWHERE, keys=SharedToken("t")).tls is None


def test_files_that_do_not_do_are_named_before_anything_listens(
    pem: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    for tls in (
        Tls(bad),
        Tls(tmp_path / "missing.pem"),
        Tls(pem, bad),
        Tls(pem, None, "", bad),
    ):
        with pytest.raises(ConfigError, match=r"bad.pem|missing.pem"):
            tls.context()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(small: str, *, chunked: bool) -> None:
    body = b'{"schema": "' + b"x" * 5000 + b'"}'
    headers = {"Authorization": "Bearer t0ken", "Content-Type": "application/json"}
    parts = iter([body[:600], body[600:]]) if chunked else body
    answer = httpx2.post(
        f"{small}/subjects/s/versions", content=parts, headers=headers, timeout=60
    )
    assert answer.status_code == 413
    assert answer.json()["error_code"] == 413
    fine = httpx2.post(
        f"{small}/subjects/s/versions", json={"schema": '"int"'}, headers=headers, timeout=60
    )
    assert fine.json()["id"] == 1


def test_who_may_not_come_in_is_told_so_whatever_he_sends(small: str) -> None:
    answer = httpx2.post(f"{small}/subjects/s/versions", content=b"x" * 5000, timeout=60)
    assert answer.status_code == 401
