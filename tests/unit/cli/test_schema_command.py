"""The schemas of a topic are listed, shown and compared without Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import main
from headrace.sdk import Mark, Schema
from headrace.sdk.location import Location
from headrace.topics import Topics, packed_row_schema, topic_row_schema

OLD = Schema.struct({"id": Schema.int32(optional=True), "s": Schema.string(optional=True)})
NEW = Schema.struct({"id": Schema.int64(optional=True), "b": Schema.boolean(optional=True)})
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the topic ``orders``, whose schema has changed, and ``many``."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    topics = Topics(Location.of(tmp_path / "home" / "topics"))
    for batch, schema in enumerate([OLD, NEW], start=1):
        topics.get("orders").prepare(topic_row_schema(schema, None))
        topics.get("orders").append((), Mark("a", batch, 1), "", NOW)
    many = topics.get("many")
    many.prepare(packed_row_schema())
    many.append((), Mark("a", 1, 1), "", NOW, schemas=[("x", OLD), ("y", OLD), ("x", NEW)])
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["schema", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


CHANGES = ["widen", "add"]


def test_schemas_are_listed_with_the_changes_since_the_one_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = asked(capsys, "list", "orders")
    assert (first["number"], first["version"], first["changes"]) == (1, 0, [])
    assert second["number"] == 2
    assert [change["kind"] for change in second["changes"]] == CHANGES
    assert main(["schema", "list", "orders"]) == 0
    assert "widen" in capsys.readouterr().out


def test_one_schema_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    first = asked(capsys, "show", "orders", "--version", "1")
    assert [field["type"] for field in first["schema"]["fields"]] == ["integer", "string"]
    newest = asked(capsys, "show", "orders")
    assert [field["name"] for field in newest["schema"]["fields"]] == ["id", "s", "b"]
    assert main(["schema", "show", "orders"]) == 0
    assert "boolean" in capsys.readouterr().out


def test_two_schemas_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    changes = asked(capsys, "diff", "orders", "1", "2")
    assert [(c["kind"], c["path"]) for c in changes] == [("widen", "id"), ("add", "b")]
    assert main(["schema", "diff", "orders", "2", "1"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["narrow id: BIGINT -> INT", "drop b BOOLEAN"]
    assert main(["schema", "diff", "orders", "1", "1"]) == 0
    assert "no difference" in capsys.readouterr().err


def test_each_stream_of_a_packed_topic_has_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = asked(capsys, "list", "many")
    assert [(v["stream"], v["number"]) for v in found] == [("x", 1), ("y", 1), ("x", 2)]
    changes = asked(capsys, "diff", "many", "1", "2", "--stream", "x")
    assert [c["kind"] for c in changes] == ["widen", "drop", "add"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "many"], "Choose one with --stream: x, y"),
        (["show", "many", "--stream", "z"], "Use one of: x, y"),
        (["show", "orders", "--version", "3"], "Choose from 1 to 2"),
        (["diff", "orders", "1", "7"], "There is no schema 7"),
        (["list", "order"], "Did you mean orders?"),
    ],
)
def test_what_is_not_there_gives_2_and_says_what_is(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
