"""A sink whose list of topics changes goes on in each topic where it was."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.cli.progress import Scoreboard
from headrace.model import TaskId
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark


def run(runtime: Runtime, folder: Path, text: str) -> None:
    file = folder / "definition.yaml"
    file.write_text(text)
    outcome = runtime.run(runtime.definitions([file]), Scoreboard(lambda: 0.0), once=True)
    assert not outcome.errors


def fill(runtime: Runtime, folder: Path, topic: str) -> None:
    run(
        runtime,
        folder,
        f"{{name: {topic}-source, source: {{connector: datagen, rows: 10}}, topic: {topic}}}",
    )


def drain(runtime: Runtime, folder: Path, topics: str) -> dict[str, int]:
    """Run a sink of these topics; return how many rows each of its tasks has read in all."""
    target = f"{{connector: delta, path: {folder / 'out'}}}"
    run(runtime, folder, f"{{name: sink, {topics}, sinks: [{target}]}}")
    state = runtime.state
    return {
        partition["topic"]: state.totals(task).read
        for task, position in state.positions("sink").items()
        for partition, _ in position.items()
    }


def test_a_topic_stays_with_the_task_that_has_read_it(runtime: Runtime, tmp_path: Path) -> None:
    for topic in ("b", "c"):
        fill(runtime, tmp_path, topic)
    assert drain(runtime, tmp_path, "topics: [b, c]") == {"b": 10, "c": 10}
    fill(runtime, tmp_path, "a")
    # By their names alone, a and b would have the places of b and c.
    assert drain(runtime, tmp_path, "topics: [a, b, c]") == {"a": 10, "b": 10, "c": 10}
    assert drain(runtime, tmp_path, "topics: [c]") == {"a": 10, "b": 10, "c": 10}
    fill(runtime, tmp_path, "d")
    counts = drain(runtime, tmp_path, "topics: [d, c, b, a]")
    assert counts == {"a": 10, "b": 10, "c": 10, "d": 10}
    standing = runtime.state.position(TaskId("sink", 2))
    assert [partition for partition, _ in standing.items()] == [{"topic": "a"}]


def test_rows_of_a_topic_that_is_not_read_any_more_are_told(
    runtime: Runtime, tmp_path: Path
) -> None:
    fill(runtime, tmp_path, "old")
    fill(runtime, tmp_path, "new")
    assert drain(runtime, tmp_path, "topics: [old]") == {"old": 10}
    more = "{name: more, source: {connector: datagen, rows: 7}, topic: old}"
    with capture_logs() as told:
        drain(runtime, tmp_path, "topics: [new]")
        assert not warnings_of(told)
        run(runtime, tmp_path, more)
        drain(runtime, tmp_path, "topics: [old, new]")
        assert not warnings_of(told)
        run(runtime, tmp_path, more.replace("name: more", "name: most"))
        drain(runtime, tmp_path, "topics: [new]")
        assert warnings_of(told) == [("old", 7)]


def warnings_of(told: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    return [(each["topic"], each["rows"]) for each in told if "unread" in each["event"]]
