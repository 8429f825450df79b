"""What configuration providers give, and what they refuse to read."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from headrace.plugins import ProviderSettings, Registry
from headrace.sdk import ConfigErrors, ProviderContext

TOKEN = "s.token-of-the-tests"  # noqa: S105 - no secret


def registry(*, serving: bool = False, folder: Path = Path("/none"), **keys: str) -> Registry:
    """Return a registry whose providers have these keys, underscores standing for dots."""
    given = {key.replace("_", "."): value for key, value in keys.items()}
    names = ("env", "file", "dir", "vault")
    return Registry(
        ProviderSettings(
            keys={name: _fitting(name, given) for name in names},
            context=ProviderContext(folders=(folder,), serving=serving),
        )
    )


def _fitting(name: str, given: dict[str, str]) -> dict[str, str]:
    known = Registry().provider(name).config_def().keys
    return {key: value for key, value in given.items() if key in known}


def value(text: str, known: Registry) -> str:
    return known.references.resolved({"password": text})["password"]


def refusal(text: str, known: Registry) -> str:
    with pytest.raises(ConfigErrors) as refused:
        value(text, known)
    [error] = refused.value.errors
    assert error.field == "password"
    assert error.fix
    return error.problem


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC_TESTS_WORD", "w0rd")
    assert value("${env:SEC_TESTS_WORD}", registry()) == "w0rd"
    assert "has no value" in refusal("${env:SEC_TESTS_NONE}", registry())
    assert "do not have a path" in refusal("${env:here:SEC_TESTS_WORD}", registry())


def test_which_variables_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SEC_TESTS", "own")
    monkeypatch.setenv("SEC_TESTS_WORD", "w0rd")
    told = "is not allowed in references"
    assert told in refusal("${env:HEADRACE_SEC_TESTS}", registry())
    some = registry(allowlist_pattern="SEC_TESTS_W.*")
    assert value("${env:SEC_TESTS_WORD}", some) == "w0rd"
    assert told in refusal("${env:XSEC_TESTS_WORD}", some)
    assert told in refusal("${env:PATH}", some)


def test_files_of_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "db.properties"
    file.write_text("# comment\npassword = a\\u00e9\\\n   b=c\nuser:me\nempty=\n")
    known = registry()
    assert value(f"${{file:{file}:password}}", known) == "a\u00e9b=c"
    assert value(f"${{file:{file}:user}}", known) == "me"
    assert value(f"${{file:{file}:empty}}", known) == ""
    assert "has no value" in refusal(f"${{file:{file}:none}}", known)
    assert "cannot be read" in refusal(f"${{file:{file}.missing:user}}", known)
    assert "absolute" in refusal("${file:db.properties:user}", known)
    assert "absolute" in refusal("${file:user}", known)


def test_each_file_of_a_folder_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("w0rd\n")
    (tmp_path / "lines").write_text("a\nb\n\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in ("dir", "directory"):
        assert value(f"${{{name}:{tmp_path}:password}}", registry()) == "w0rd"
    assert value(f"${{dir:{tmp_path}:lines}}", registry()) == "a\nb\n"
    assert "not UTF-8 text" in refusal(f"${{dir:{tmp_path}:binary}}", registry())
    assert "has no value" in refusal(f"${{dir:{tmp_path}:none}}", registry())
    for name in ("../x", "a/b", ""):
        assert "Invalid file name" in refusal(f"${{dir:{tmp_path}:{name}}}", registry())


@pytest.mark.parametrize("form", ["${{dir:{folder}:{name}}}", "${{file:{folder}/{name}:key}}"])
def test_a_server_reads_what_is_meant_for_it(tmp_path: Path, form: str) -> None:
    secrets, others = tmp_path / "secrets", tmp_path / "others"
    for folder in (secrets, others):
        folder.mkdir()
        (folder / "name").write_text("key=w0rd")
    (secrets / "link").symlink_to(others / "name")
    (secrets / "near").symlink_to(secrets / "name")

    def text(folder: Path, name: str = "name") -> str:
        return form.format(folder=folder, name=name)

    mine, strict = registry(), registry(serving=True, folder=secrets)
    wide = registry(serving=True, folder=secrets, allowed_paths=f"/none, {others}")
    assert value(text(others), mine).endswith("w0rd")
    assert value(text(secrets), strict).endswith("w0rd")
    assert value(text(secrets, "near"), strict).endswith("w0rd")
    told = "not among the paths"
    assert told in refusal(text(others), strict)
    assert told in refusal(text(secrets, "link"), strict)
    assert told in refusal(text(secrets / ".." / "others"), strict)
    assert told in refusal(text(Path(f"{secrets}2")), strict)
    assert value(text(others), wide).endswith("w0rd")
    assert told in refusal(text(secrets), wide)


@pytest.fixture
def vault(httpserver: HTTPServer) -> Iterator[HTTPServer]:
    """Return a server that speaks what Vault speaks of its KV engine, version 2."""
    held = {
        "/v1/secret/data/app/db": {"password": "v4ult", "port": 5432},
        "/v1/team/kv/data/x": {},
    }

    def answer(request: Request) -> Response:
        if request.path == "/v1/auth/approle/login":
            given = request.get_json()
            known = given == {"role_id": "role", "secret_id": "secret-id"}
            return _json(
                {"auth": {"client_token": TOKEN}} if known else {"errors": []}, ok=known
            )
        if request.headers.get("X-Vault-Token") != TOKEN:
            return _json({"errors": ["permission denied"]}, ok=False, status=403)
        if request.path not in held:
            return _json({"errors": []}, ok=False, status=404)
        return _json({"data": {"data": held[request.path], "metadata": {"version": 3}}})

    httpserver.expect_request(re.compile("/v1/.*")).respond_with_handler(answer)
    yield httpserver
    httpserver.clear()


def _json(body: object, *, ok: bool = True, status: int = 400) -> Response:
    return Response(json.dumps(body), 200 if ok else status, mimetype="application/json")


def test_secrets_of_vault(vault: HTTPServer, tmp_path: Path) -> None:
    known = registry(address=vault.url_for(""), token=TOKEN)
    assert value("${vault:secret/app/db:password}", known) == "v4ult"
    assert value("${vault:secret/data/app/db:port}", known) == "5432"
    assert "has no value" in refusal("${vault:secret/app/db:none}", known)
    assert "does not exist" in refusal("${vault:secret/none:x}", known)
    assert "Invalid path of a secret" in refusal("${vault:password}", known)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    by_file = registry(address=vault.url_for(""), token_file=str(file))
    assert value("${vault:secret/app/db:password}", by_file) == "v4ult"


def test_vault_by_a_role_of_an_application(vault: HTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "secret-id"
    file.write_text("secret-id")
    known = registry(
        address=vault.url_for(""),
        approle_role_id="role",
        approle_secret_id_file=str(file),
    )
    assert value("${vault:secret/app/db:password}", known) == "v4ult"
    file.write_text("another")
    assert "permission denied" in refusal("${vault:secret/app/db:password}", known)


def test_what_vault_refuses_is_told_without_the_token(vault: HTTPServer) -> None:
    address = vault.url_for("")
    wrong = registry(address=address, token="s.wrong")  # noqa: S106 - no secret
    told = refusal("${vault:secret/app/db:password}", wrong)
    assert "permission denied" in told
    vault.stop()
    down = registry(address=address, token=TOKEN)
    told = refusal("${vault:secret/app/db:password}", down)
    assert "Vault is not available" in told
    assert TOKEN not in told
    vault.start()


def test_without_its_package_vault_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "hvac", None)
    assert "hvac" in refusal("${vault:secret/app/db:password}", registry())


def test_settings_of_a_provider_are_checked() -> None:
    wrong = Registry(ProviderSettings(keys={"env": {"allowlist.pattern": "("}}))
    assert "config" in refusal("${env:X}", wrong)
    none = Registry(ProviderSettings(keys={"mine": {"class": "Nothing"}}))
    assert "Nothing" in refusal("${mine:X}", none)


def test_a_provider_may_have_another_name(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_text("a=1")
    keys = {"mine": {"class": "FileConfigProvider", "allowed.paths": str(tmp_path)}}
    known = Registry(ProviderSettings(keys=keys))
    assert value(f"${{mine:{file}:a}}", known) == "1"
