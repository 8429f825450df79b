"""What lines say of letters that were repaired by hand, read without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.dataplane.arrow_letters import few_repairs
from headrace.sdk import ConfigError


def repairs(folder: Path, *lines: str) -> list[dict[str, Any]]:
    file = folder / "letters.jsonl"
    file.write_bytes("\n".join(lines).encode())
    found = few_repairs(file, "a")
    assert found is not None
    return list(found.to_pylist())


def test_a_line_says_as_it_stands_there_what_a_letter_is_to_be(tmp_path: Path) -> None:
    header = {"key": "k", "value": "v", "type": "string"}
    line = '{"id": "1-0", "key": null, "stage": "TASK_PUT", "value": {"b": 2.50, "a": [ 1e400]}'
    [said] = repairs(
        tmp_path, f'\ufeff{line}, "headers": [{json.dumps(header)}, null]}} \r\n\n'
    )
    value = '{"b": 2.50, "a": [ 1e400]}'
    assert said == {
        "id": "1-0",
        "new_key": "null",
        "new_value": value,
        "new_text": value,
        "new_headers": [header, None],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"1,\\"much\\""', '1,"much"'),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("null", None),
        ('"\\ud800"', "?"),
    ],
)
def test_the_text_of_a_value_is_what_its_letter_would_have_to_be(
    tmp_path: Path, value: str, text: str | None
) -> None:
    [said] = repairs(tmp_path, f'{{"id":"1-0","value":{value}}}')
    assert (said["new_value"], said["new_text"]) == (value, text)


def test_what_a_line_leaves_out_stays(tmp_path: Path) -> None:
    assert repairs(tmp_path, '{"id":7}', '{"id":"1-0","headers":"none"}') == [
        {"id": name, "new_key": None, "new_value": None, "new_text": None, "new_headers": None}
        for name in ("7", "1-0")
    ]


def test_headers_that_are_no_texts_become_some(tmp_path: Path) -> None:
    [said] = repairs(tmp_path, '{"id":"1-0","headers":[{"key":"k","value":{"a":[1,true]}},5]}')
    assert said["new_headers"] == [{"key": "k", "value": '{"a":[1,true]}', "type": None}, None]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[1]",
        '"1-0"',
        "{}",
        '{"id":null}',
        '{"id":"1-0",}',
        '{"id":"1-0"',
        '{"id" "1-0"}',
        '{"id":"1-0"}{"id":"1-1"}',
        '{"id":"1-0","id":"1-0"}',
        '{"id":"1-0","value":{"a":1,"a":2}}',
        '{"id":"1-0","value":NaN}',
        '{"id":"1-0",1:2}',
        '{"id":"1-0","value":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_a_line_that_is_no_json_object_with_an_id_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="1 of 2 lines are not JSON objects with an id"):
        repairs(tmp_path, '{"id":"1-5"}', line)


def test_two_lines_that_name_one_letter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 lines have the same id as another line"):
        repairs(tmp_path, '{"id":"1-5"}', '{"id":"1-5"}')


def test_what_spark_has_to_read_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert few_repairs(tmp_path / "missing.jsonl", "a") is None
    assert few_repairs(tmp_path, "a") is None
    for name in ("letters.jsonl", "letters.jsonl.gz"):
        (tmp_path / name).write_text('{"id":"1-5"}')
    assert few_repairs(tmp_path / "letters.jsonl.gz", "a") is None
    assert few_repairs(tmp_path / "letters.jsonl", "a") is not None
    monkeypatch.setattr("headrace.dataplane.arrow_letters._FILE_BYTES", 11)
    assert few_repairs(tmp_path / "letters.jsonl", "a") is None


def test_a_letter_of_another_connector_has_the_id_of_none(tmp_path: Path) -> None:
    """Ids are unique in a topic: the same one is another letter of another connector."""
    file = tmp_path / "letters.jsonl"
    none, own = '{"id": "1-1", "connector": null}', '{"id": "1-0", "connector": "b"}'
    line = f'{{"id": "1-0", "connector": "alpha"}}\n{none}\n{own}'
    file.write_text(line)
    found = few_repairs(file, "b")
    assert found is not None
    assert found["id"].to_pylist() == ["alpha/1-0", "1-1", "1-0"]
    file.write_text(line.replace("alpha", "b"))
    with pytest.raises(ConfigError, match="same id"):
        few_repairs(file, "b")
