"""The schema registry as users serve it: a process, its clients, and its sudden end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from headrace.cli import main

HEADRACE = Path(sys.executable).with_name("headrace")
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": "int"}],
}


def environment(home: Path, variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "HEADRACE_HOME": str(home), **variables}


@contextmanager
def served(home: Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen(
        [HEADRACE, "registry", "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(home, variables),
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], process
        finally:
            process.kill()


def headrace(home: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    ended = subprocess.run(
        [HEADRACE, "registry", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(home, variables),
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_a_killed_server_keeps_every_id_it_gave(tmp_path: Path) -> None:
    schemas = [Schema(json.dumps({**RECORD, "name": f"R{n}"})) for n in range(5)]
    with served(tmp_path) as (url, process), SchemaRegistryClient({"url": url}) as client:
        made = [client.register_schema(f"s{n}", schema) for n, schema in enumerate(schemas)]
        client.delete_subject("s4")
        process.kill()
        process.wait()
    assert len(set(made)) == 5
    with served(tmp_path) as (url, process), SchemaRegistryClient({"url": url}) as client:
        again = [client.register_schema(f"s{n}", schema) for n, schema in enumerate(schemas)]
        assert again == made
        assert client.get_versions("s4") == [2]
        assert client.register_schema("new", Schema('"int"')) == max(made) + 1
        process.terminate()
        assert process.wait(timeout=120) == 0


def test_a_token_is_asked_for_and_told_to_nobody(tmp_path: Path) -> None:
    token = {"HEADRACE_REGISTRY_TOKEN": "s3cret"}
    with served(tmp_path, **token) as (url, _):
        with (
            SchemaRegistryClient({"url": url}) as stranger,
            pytest.raises(SchemaRegistryError) as refused,
        ):
            stranger.get_subjects()
        assert refused.value.http_status_code == 401
        conf = {"url": url, "basic.auth.user.info": "anyone:s3cret"}
        with SchemaRegistryClient(conf) as client:
            assert client.get_subjects() == []
        code, output = headrace(tmp_path, "subjects", "--url", url, "--json", **token)
        assert (code, output) == (0, "[]\n")
        wrong = url.replace("http://", "http://user:wr0ng@")
        code, output = headrace(tmp_path, "subjects", "--url", wrong)
        assert code == 1
        assert "registry.refused" in output
        assert "wr0ng" not in output
    code, output = headrace(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert code == 2
    assert "HEADRACE_REGISTRY_TOKEN" in output


def test_the_commands_work_on_a_server_and_on_the_store_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def headrace(*arguments: str) -> tuple[int, str]:
        code = main(["--home", str(tmp_path), "registry", *arguments])
        return code, capsys.readouterr().out

    file, worse = tmp_path / "r.avsc", tmp_path / "worse.avsc"
    file.write_text(json.dumps(RECORD))
    wider = {**RECORD, "fields": [*RECORD["fields"], {"name": "y", "type": "int"}]}
    worse.write_text(json.dumps(wider))
    with served(tmp_path) as (url, _):
        assert headrace("register", "s", str(file), "--url", url) == (0, "1\n")
        code, output = headrace("check", "s", str(worse), "--json")
        answer = json.loads(output)
        assert (code, answer["compatible"], answer["level"]) == (1, False, "BACKWARD")
        assert headrace("compatibility", "s", "--set", "NONE", "--url", url) == (0, "NONE\n")
        assert headrace("check", "s", str(worse), "--url", url)[0] == 0
        _, output = headrace("show", "s", "--json")
        assert json.loads(output)["schema"] == json.dumps(RECORD, separators=(",", ":"))
        _, output = headrace("delete", "s", "--json", "--url", url)
        assert json.loads(output) == {"subject": "s", "deleted": [1]}
        assert headrace("subjects", "--json") == (0, "[]\n")
        assert headrace("subjects", "--deleted", "--json") == (0, '["s"]\n')
        assert headrace("show", "s")[0] == 1
