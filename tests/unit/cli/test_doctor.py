"""``headrace doctor``: what is there, what is missing, and what does not answer."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main

GOOD = """\
name: orders
source: {{connector: file, path: {folder}/in.csv, schema: "id BIGINT NOT NULL"}}
sink: {{connector: delta, path: {folder}/table, mode: upsert, key.fields: id}}
"""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


def _findings(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]]]:
    file = folder / "copy.yaml"
    file.write_text(text)
    code = main(["doctor", str(file), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_connector_that_has_what_it_needs_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("id\n1\n")
    code, found = _findings(tmp_path, GOOD.format(folder=tmp_path), capsys)
    assert code == 0
    assert {each["part"] for each in found} == {"definition", "source", "sinks[0]", "machine"}
    assert {each["verdict"] for each in found} == {"ok"}
    assert not (tmp_path / "table").exists()


def test_what_is_missing_is_shown_once_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table").write_text("a file")
    code, found = _findings(tmp_path, GOOD.format(folder=tmp_path), capsys)
    failed = [each for each in found if each["verdict"] == "failed"]
    assert code == 2
    assert [each["part"] for each in failed] == ["source", "sinks[0]"]
    assert failed[0]["found"].endswith("in.csv does not exist.")
    assert "not a folder" in failed[1]["found"]
    assert all(each["fix"] for each in failed)


def test_keys_that_are_not_valid_are_findings_beside_those_of_other_plugins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.format(folder=tmp_path).replace("mode: upsert", "mode: sideways")
    code, found = _findings(tmp_path, text, capsys)
    failed = {each["requirement"] for each in found if each["verdict"] == "failed"}
    assert code == 2
    assert failed == {"sinks[0].mode", "path"}


def test_an_exception_of_a_plugin_is_a_finding_without_its_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "name: guarded\ntopic: t\n"
        "source: {connector: tests.unit.cli.examined_sources.Guarded, password: hunter22}\n"
    )
    code, found = _findings(tmp_path, text, capsys)
    of_source = [each for each in found if each["part"] == "source"]
    assert code == 2
    assert [each["verdict"] for each in of_source] == ["ok", "failed"]
    assert "login as" in of_source[1]["found"]
    assert "hunter22" not in json.dumps(found)


def test_a_plugin_that_does_not_answer_in_time_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CONNECTOR_TIMEOUT", "0.5")
    text = (
        "name: silent\ntopic: t\n"
        "source: {connector: tests.unit.cli.examined_sources.Silent, password: hunter22}\n"
    )
    code, found = _findings(tmp_path, text, capsys)
    (silent,) = (each for each in found if each["part"] == "source")
    assert (code, silent["verdict"]) == (2, "failed")


def test_columns_and_features_of_a_table_are_examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    (tmp_path / "in.csv").write_text("id\n1\n")
    rows = pa.table({"other": [1]})
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(tmp_path / "table"), rows, configuration=properties)
    code, found = _findings(tmp_path, GOOD.format(folder=tmp_path), capsys)
    warnings = {each["requirement"] for each in found if each["verdict"] == "warning"}
    assert code == 0
    assert warnings == {"commits without Spark", "column id of the key"}


KEYLESS = """\
name: shop
source: {{connector: jdbc, connection.url: "sqlite:///{folder}/shop.db"}}
sink:
  connector: sqlite
  connection.url: sqlite:///{folder}/copy.db
  insert.mode: upsert
  table.mapping: [{{from: b, key.fields: id}}]
"""


def test_tables_without_a_key_are_one_error_of_validate_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
        for name in "bcde":
            shop.execute(f"CREATE TABLE {name} (id INTEGER)")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        copy.execute("CREATE TABLE d (id INTEGER PRIMARY KEY)")
    text = KEYLESS.format(folder=tmp_path)
    code, found = _findings(tmp_path, text, capsys)
    [failed] = [each for each in found if each["verdict"] == "failed"]
    assert "no primary key in: c, e." in failed["found"]
    assert "table.mapping" in failed["fix"]
    assert code == main(["validate", str(tmp_path / "copy.yaml")]) == 2
    assert "no primary key in: c, e." in capsys.readouterr().err
    (tmp_path / "copy.yaml").write_text(text.replace("upsert", "insert"))
    assert main(["validate", str(tmp_path / "copy.yaml")]) == 0


MISTAKEN = """\
name: shop
source:
  connector: jdbc
  connection.url: postgresql://127.0.0.1:1/shop
  poll.interval.ms: 1000
sinks:
  - {connector: postgres, connection.url: "postgresql://nohost.invalid/copy"}
  - {connector: mysql, connection.url: "mysql://127.0.0.1:1/copy"}
  - connector: mysql
    connection.url: mysql://127.0.0.1/copy
    connection.password: ${env:NOPE_NOT_SET}
"""


def test_what_is_mistaken_is_named_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = _findings(tmp_path, MISTAKEN, capsys)
    failed = {e["part"] + " " + e["requirement"]: e for e in found if e["verdict"] == "failed"}
    assert code == 2
    for part in ("source", "sinks[0]", "sinks[1]"):
        assert "connection.url" in failed[f"{part} a connection"]["fix"]
    assert "to the top level" in failed["definition source.poll.interval.ms"]["fix"]
    unset = failed["definition sinks[2].connection.password"]["found"]
    assert "${env:NOPE_NOT_SET}" in unset


def test_tables_that_are_not_there_are_met_with_the_name_that_is_close(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    text = KEYLESS.format(folder=tmp_path)
    text = text.replace('shop.db"}', 'shop.db", table.include.list: ordrs}')
    _, found = _findings(tmp_path, text, capsys)
    [failed] = [each for each in found if each["verdict"] == "failed"]
    assert "No such table, or no permission to read it: ordrs" in failed["found"]
    assert "Did you mean orders?" in failed["fix"]
