"""The stages of a preview as tables and as JSON."""

import io
import json

import pytest
from rich.console import Console

from headrace.cli.terminal import Terminal
from headrace.cli.trials import Stage, show_stages, stage_summary, stage_table

FIELDS = {"id": "long", "name": "string"}
SOURCE: Stage = {
    "name": "source",
    "fields": FIELDS,
    "records": [
        {"key": None, "value": {"id": 1, "name": "a"}},
        {"key": None, "value": {"id": 2}},
        {"key": None, "value": {"id": 3, "name": "c\nd"}},
    ],
}
STEP: Stage = {
    "name": "onlyOdd",
    "fields": FIELDS,
    "records": [
        {"key": "k", "value": {"id": 1, "name": "a"}},
        {"key": None, "value": {"id": 2}, "dropped": "onlyOdd"},
        {
            "key": None,
            "value": {"id": 3},
            "error": {"plugin": "Cast", "message": "cannot cast", "stage": "TRANSFORMATION"},
        },
    ],
}


def _lines(stage: Stage) -> list[str]:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(stage_table(stage, width=200))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_source_has_a_line_a_record_under_names_and_types() -> None:
    title, names, types, _, *rows = _lines(SOURCE)
    assert title == "source"
    assert names.split() == ["id", "name"]
    assert types.split() == ["long", "string"]
    assert [row.split() for row in rows] == [["1", "a"], ["2", "null"], ["3", "c\\nd"]]
    assert stage_summary(SOURCE) == "3 records"


def test_dropped_and_rejected_records_say_why() -> None:
    lines = _lines(STEP)
    assert lines[-2].endswith("dropped by onlyOdd")
    assert lines[-1].endswith("rejected by Cast: cannot cast")
    assert lines[-3].split() == ["k", "1", "a"]
    assert stage_summary(STEP) == "3 records, 1 dropped here, 1 rejected here"


def test_what_became_of_a_record_is_shown_on_narrow_screens_too() -> None:
    console = Console(width=50, record=True, file=io.StringIO())
    console.print(stage_table(STEP, width=50))
    assert "dropped by onlyOdd" in console.export_text()


def test_a_value_without_fields_has_one_column() -> None:
    records = [{"key": None, "value": "raw line"}]
    scalar = {"name": "source", "fields": {}, "records": records}
    assert _lines(scalar)[-1] == "raw line"


def test_the_json_holds_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    show_stages(Terminal(as_json=True), "flights", [SOURCE, STEP])
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"connector": "flights", "stages": [SOURCE, STEP]}
