"""What `transform try` shows of records."""

from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import hoisted
from headrace.cli.inputs import read_lines
from headrace.cli.trials import record_lines
from headrace.sdk import ConfigError

RECORD: dict[str, Any] = {
    "topic": "topic",
    "partition": None,
    "key": None,
    "value": {"id": 1},
    "headers": [],
    "timestamp": None,
}


def _shown(given: object, *steps: dict[str, Any], **end: object) -> list[str]:
    result = {"steps": list(steps), **end}
    return [line.plain.rstrip() for line in record_lines(1, given, result)]


def test_a_step_shows_what_it_changed_and_no_more() -> None:
    changed = {**RECORD, "value": {"id": "1"}, "key": 5}
    assert _shown(
        {"value": {"id": 1}},
        {"name": "first", "record": RECORD},
        {"name": "second", "record": changed},
        {"name": "third", "dropped": "third"},
        dropped="third",
    ) == [
        "record 1",
        '  given        value={"id": 1}',
        "  first        unchanged",
        '  second       key=5  value={"id": "1"}',
        "  third        dropped",
    ]


def test_schemas_are_shown_in_a_few_words() -> None:
    schema = {
        "type": "struct",
        "name": "Row",
        "fields": [
            {"field": "id", "type": "int32", "optional": True},
            {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
            {"field": "l", "type": "array", "items": {"type": "string"}},
            {
                "field": "m",
                "type": "map",
                "keys": {"type": "string"},
                "values": {"type": "int8"},
            },
        ],
    }
    shown = _shown({"value": None, "value_schema": schema})[1]
    words = "Row{id: int32?, at: Timestamp, l: [string], m: {string -> int8}}"
    assert shown.endswith(f"value_schema={words}")


def test_errors_are_shown_at_their_step_or_at_the_record() -> None:
    error = {"class": "DataException", "message": "no"}
    assert _shown(RECORD, {"name": "s", "error": error}, error=error)[-1] == (
        "  s            rejected by DataException: no"
    )
    assert _shown([1], error=error)[1:] == [
        "  given        value=[1]",
        "               rejected by DataException: no",
    ]


def test_records_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"value": 1}\n\n{"value": 2}\n')
    assert read_lines(file, "--records", "JSON", "") == [{"value": 1}, {"value": 2}]
    file.write_text('{"value": 1}\n{\n')
    with pytest.raises(ConfigError, match=r"Line 2 .* is not JSON"):
        read_lines(file, "--records", "JSON", "")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lines(tmp_path / "none", "--records", "JSON", "")


def test_the_option_of_its_own_is_not_taken_for_the_settings_file() -> None:
    given = ["transform", "try", "--config", "a.json", "--records", "b", "-q"]
    assert hoisted(given) == ["-q", *given[:-1]]
    assert hoisted(["--config", "s.toml", *given]) == ["--config", "s.toml", "-q", *given[:-1]]
