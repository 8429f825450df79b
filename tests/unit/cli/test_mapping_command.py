"""``headrace mapping``: what rules match now, without Spark."""

import json
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.sdk import Schema
from headrace.sdk.location import Location
from headrace.topics import Topics, topic_row_schema

SINK = """\
name: shop
topics: [offer00, offer01, orders, public.users]
sink:
  connector: delta
  path: lake/${table}
  table.mapping:
    - from: offer[00-31]
      to: offer
      columns: {rename: {id: offer_id}, types: {offer_id: INT}, exclude: nmae}
      priority: 2
      key.fields: offer_id
    - from: orders
      columns: {add: {at: current_timestamp(), twice: id * 2}, types: {twice: BIGINT}}
    - {from: "old_*", to: archive}
"""


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A definition of a sink, and topics for it."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    topics = Topics(Location.of(tmp_path / "home" / "topics"))
    plain = {"id": Schema.int64(), "name": Schema.string(optional=True)}
    for name, fields in {
        "offer00": plain,
        "offer01": {**plain, "price": Schema.float64(optional=True)},
        "orders": plain,
        "public.users": plain,
        "else": plain,
    }.items():
        topics.get(name).prepare(topic_row_schema(Schema.struct(fields), None))
    file = tmp_path / "shop.yaml"
    file.write_text(SINK)
    return file


def test_each_stream_is_shown_with_its_table_and_columns(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mapping", str(definition), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["connector"], found["sink"]) == ("shop", "delta")
    assert found["rules"] == ["offer[00-31]", "orders", "old_*"]
    tables = {
        each["stream"]: [
            (t["rule"], t["table"], t["priority"], t["key"]) for t in each["tables"]
        ]
        for each in found["streams"]
    }
    assert tables == {
        "offer00": [(0, "lake/offer", 2, ["offer_id"])],
        "offer01": [(0, "lake/offer", 2, ["offer_id"])],
        "orders": [(1, "lake/orders", 0, [])],
        "public.users": [(None, "lake/public.users", 0, [])],
    }
    columns = found["streams"][2]["tables"][0]["columns"]
    assert columns == [
        {"source": "id", "name": "id", "type": "BIGINT"},
        {"source": "name", "name": "name", "type": "STRING"},
        {"source": "current_timestamp()", "name": "at", "type": None},
        {"source": "id * 2", "name": "twice", "type": "BIGINT"},
    ]


def test_what_may_not_be_meant_is_a_warning(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mapping", str(definition)]) == 0
    shown = capsys.readouterr()
    for said in (
        "sinks[0].table.mapping[2]: No stream matches old_* now.",
        "No rule matches public.users, which goes to lake/public.users.",
        "sinks[0].table.mapping[0]: offer00 has no field nmae.",
        "offer01 and offer00 go to lake/offer with different columns: price.",
    ):
        assert said in shown.err
    assert "id → offer_id INT" in shown.out


def test_streams_that_rules_do_not_allow_are_errors(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = definition.read_text().replace('{from: "old_*", to: archive}', "{from: offer0*}")
    definition.write_text(text + "  table.mapping.unmatched: fail\n")
    assert main(["mapping", str(definition)]) == 2
    shown = capsys.readouterr().err
    assert "sinks[0].table.mapping: No rule matches public.users." in shown
    definition.write_text(text.replace("{from: offer0*}", '{from: "*", to: orders}'))
    assert main(["mapping", str(definition)]) == 2
    shown = capsys.readouterr().err
    assert "sinks[0].table.mapping[2].from: table.mapping[1] already maps orders" in shown


def test_what_transforms_rename_is_mapped_by_its_new_name(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = "transforms:\n  - {type: RegexRouter, regex: orders, replacement: old_orders}\n"
    definition.write_text(definition.read_text() + steps)
    assert main(["mapping", str(definition), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    tables = {each["stream"]: each["tables"][0] for each in found["streams"]}
    assert tables["old_orders"]["table"] == "lake/archive"
    assert tables["old_orders"]["columns"] is None


def test_topics_of_a_regular_expression_are_those_that_are_there(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "connector.class": "headrace_plugins.connectors.delta.sink.DeltaSink",
        "topics.regex": "offer.*|new.*",
        "path": "lake/${table}",
        "table.mapping": [{"from": "offer[00-31]", "to": "offer"}],
    }
    file = definition.with_suffix(".json")
    file.write_text(json.dumps({"name": "shop", "config": config}))
    assert main(["mapping", str(file), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert [each["stream"] for each in found["streams"]] == ["offer00", "offer01"]


def test_a_direct_copy_has_the_stream_of_its_connector_and_other_sinks_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    file = tmp_path / "copy.yaml"
    file.write_text(
        "name: copy\nsource: {connector: datagen, rows: 3}\n"
        "sinks: [{connector: noop}, {connector: delta, path: out}]\n"
    )
    assert main(["mapping", str(file), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert [(s["stream"], s["tables"][0]["table"]) for s in found["streams"]] == [
        ("copy", "out")
    ]


def test_streams_that_only_a_run_tells_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    file = tmp_path / "copy.yaml"
    file.write_text(
        "name: copy\nsource: {connector: datagen, rows: 3, streams: 2}\n"
        "sink: {connector: delta, path: '${table}', table.mapping: [{from: a}]}\n"
    )
    assert main(["mapping", str(file), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    [warning] = found["warnings"]
    assert "known only while the source" in warning["problem"]


def test_a_file_that_is_wrong_is_told_as_by_validate(
    definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    definition.write_text(definition.read_text().replace("priority", "prioritty"))
    assert main(["mapping", str(definition)]) == 2
    shown = capsys.readouterr().err
    assert "sinks[0].table.mapping[0].prioritty: Unknown key." in shown
    assert "Did you mean priority?" in shown
