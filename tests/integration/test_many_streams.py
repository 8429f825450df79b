"""A source of many streams fills its topic, and a sink divides them again."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.cli.progress import Scoreboard
from headrace.model import TaskId

pytestmark = pytest.mark.spark

SOURCE = """
name: many
topic: packed
source:
  connector: datagen
  rows: 30
  streams: 3
"""
SINK = """
name: out
topics: packed
sinks:
  - connector: file
    path: {folder}/${{topic}}
    format: json
"""


def test_each_stream_arrives_once_also_in_a_second_run(runtime, tmp_path: Path) -> None:
    files = []
    for name, text in (("many", SOURCE), ("out", SINK.format(folder=tmp_path / "out"))):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(text)
    for _ in range(2):
        definitions = runtime.definitions(files)
        outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
        assert not outcome.errors
    assert runtime.state.totals(TaskId("many", 0)).written == 30
    parts = [*(tmp_path / "out").rglob("part-*.json")]
    assert len({part.parent.name for part in parts}) == 3
    assert sum(len(part.read_text().splitlines()) for part in parts) == 30


@pytest.mark.parametrize("limit", ["", "batch.max.rows: 1\n"])
def test_streams_that_a_transform_would_make_one_of_are_refused(
    runtime, tmp_path: Path, limit: str
) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(f"{SOURCE}{limit}transforms: [{{type: Filter, condition: 'true'}}]\n")
    outcome = runtime.run(runtime.definitions([file]), Scoreboard(lambda: 0.0), once=True)
    [error] = outcome.errors.values()
    assert "in the topic packed: rows of one stream" in str(error)


def test_another_run_may_not_add_a_stream_to_that_of_a_topic_either(
    runtime, tmp_path: Path
) -> None:
    database, file = tmp_path / "source.db", tmp_path / "copy.yaml"
    text = (
        "name: copy\ntopic: packed\ntransforms: [{{type: Filter, condition: 'true'}}]\n"
        "source: {{connector: jdbc, connection.url: 'sqlite:{}', mode: bulk, "
        "table.include.list: '{}'}}\n"
    )
    with closing(sqlite3.connect(database)) as made:
        made.executescript(
            "CREATE TABLE a (id); CREATE TABLE b (id); INSERT INTO a VALUES (1);"
        )
        made.executescript("INSERT INTO b VALUES (1);")
    for table, is_taken in (("a", True), ("a, b", False), ("a, b", False)):
        file.write_text(text.format(database, table))
        scores = Scoreboard(lambda: 0.0)
        outcome = runtime.run(runtime.definitions([file]), scores, once=True)
        told = [str(error) for error in outcome.errors.values()]
        assert bool(told) is not is_taken
        assert all("would merge the streams a, b in the topic packed" in each for each in told)
