"""The file has a line of JSON for each connector, each task and the worker."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.metrics.told import AT, HOSTILE, told

from headrace.plugins import Registry
from headrace.sdk import ConfigError
from headrace_plugins.reporters import JsonLines


@contextmanager
def reporter(path: Path, **config: str) -> Iterator[JsonLines]:
    made = JsonLines()
    try:
        made.configure(JsonLines.config_def().parse({"path": str(path), **config}))
        yield made
    finally:
        made.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_says_what_it_is_about(tmp_path):
    path = tmp_path / "below" / "metrics.jsonl"
    with reporter(path) as made:
        made.report(AT, told().samples())
    found = {(line.get("connector"), line.get("task")): line for line in lines(path)}
    expected = {(name, task) for name in ("orders", HOSTILE) for task in (None, "0")}
    assert found.keys() == expected | {(None, None)}
    task = found["orders", "0"]
    assert task["at"] == AT.isoformat()
    assert task["metrics"]["headrace_task_records_read_total"] == 9
    assert task["metrics"]['headrace_task_state{state="RUNNING"}'] == 1
    assert task["metrics"]["headrace_task_batch_seconds_count"] == 1
    assert not [name for name in task["metrics"] if "_bucket" in name]


def test_only_what_is_asked_for_is_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    wanted = {"include": "headrace_task_records,headrace_task_batch", "buckets": "true"}
    with reporter(path, **wanted) as made:
        made.report(AT, told().samples())
    names = {name for line in lines(path) for name in line["metrics"]}
    assert 'headrace_task_batch_seconds_bucket{le="0.5"}' in names
    assert all(
        name.startswith(("headrace_task_records", "headrace_task_batch")) for name in names
    )


def test_the_file_is_put_aside_when_it_is_large(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with reporter(path, **{"max.bytes": "3000", "kept.files": "2"}) as made:
        for _ in range(20):
            made.report(AT, told().samples())
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "metrics.jsonl",
        "metrics.jsonl.1",
        "metrics.jsonl.2",
    ]
    for file in tmp_path.iterdir():
        assert lines(file)


def test_a_file_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="path"), reporter(tmp_path / "file" / "below"):
        pass


def test_an_error_while_writing_is_raised(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with reporter(path) as made:
        made.report(AT, told().samples())
        assert made._file is not None
        assert made._file.stream is not None
        made._file.stream.close()
        with pytest.raises(ValueError, match="closed"):
            made.report(AT, told().samples())
        made._file.stream = None


def test_it_is_found_as_a_plugin():
    assert Registry().reporter("JsonLines") is JsonLines
