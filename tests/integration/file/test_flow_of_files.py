"""Files to files through the runtime's own flow: counts, dead letters, crashes, types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import transform

from headrace.dataplane import DeadLetterWriter, Flow, FrameReader, Step
from headrace.model import Batch, TaskId, ToleranceExceededError
from headrace.sdk import Position, ReadLimit
from headrace.sdk.location import Location
from headrace.topics import Topics
from headrace_plugins.transforms.cast import Cast

pytestmark = pytest.mark.spark

TASK = TaskId("files", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Start = Callable[..., Any]


@pytest.fixture
def flow(spark: Any, source: Start, sink: Start, tmp_path: Path) -> Callable[..., Flow]:
    """Copy the folder ``in`` into the folder ``out``."""

    def build(*, dead: bool = False, **keys: str) -> Flow:
        topic = Topics(Location.of(tmp_path / "topics")).get("dead")
        letters = (
            DeadLetterWriter(task=TASK, topic=topic, appended=lambda _: None) if dead else None
        )
        reader = FrameReader(source(tmp_path / "in", **keys).task)
        return Flow(
            spark=spark,
            application="files-0",
            topic="t",
            source=reader,
            steps=[],
            sinks=[sink(tmp_path / "out")],
            staging=Location.of(tmp_path / "divided"),
            dead_letters=letters,
        )

    return build


def batch(flow: Flow, number: int, start: Position, *, again: bool = False) -> Batch:
    end = flow.source.latest(start, ReadLimit())
    return Batch(TASK, number, 1, start, end, NOW, again=again)


def written(folder: Path) -> list[dict[str, Any]]:
    files = [str(path) for path in folder.glob("part-*")]
    rows: list[dict[str, Any]] = ds.dataset(files).to_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def test_files_become_files_and_every_row_is_accounted_for(
    flow: Callable[..., Flow], tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.csv", "id,at\n1,2024-01-01T00:00:00Z\n2,\n")
    put(tmp_path / "in", "b.csv", "at,id\n,3\n")
    one = flow()
    first = batch(one, 1, Position())
    counts = one.run(first)
    assert (counts.read, counts.written, counts.rejected) == (3, 3, 0)
    assert counts.size_bytes == sum(p.stat().st_size for p in (tmp_path / "in").iterdir())
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert written(tmp_path / "out") == [
        {"id": 1, "at": at},
        {"id": 2, "at": None},
        {"id": 3, "at": None},
    ]
    # A crash after the commit, before the position is stored: the batch runs again.
    again = flow()
    repeated = Batch(TASK, 1, 2, first.start, first.end, NOW, again=True)
    assert again.run(repeated).written == 3
    assert len(written(tmp_path / "out")) == 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dead", [False, True])
def test_rows_of_hundreds_of_columns_are_planned_in_seconds(
    flow: Callable[..., Flow], tmp_path: Path, dead: bool
) -> None:
    columns = ["id", *(f"c{number}" for number in range(500))]
    put(tmp_path / "in", "a.csv", "\n".join([",".join(columns), ",".join("1" * 501)]))
    cast = Step(transform(Cast, "cast", spec="c0:string"))
    one = replace(flow(dead=dead), steps=[cast])
    assert one.run(batch(one, 1, Position())).written == 1
    (row,) = written(tmp_path / "out")
    assert list(row) == columns
    assert (row["c0"], row["c1"]) == ("1", 1)


def test_a_malformed_row_stops_the_batch_and_nothing_of_it_is_written(
    flow: Callable[..., Flow], tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.csv", "id,n\n1,2\n2,x\n")
    one = flow(schema="id BIGINT, n INT")
    with pytest.raises(ToleranceExceededError, match="2,x") as raised:
        one.run(batch(one, 1, Position()))
    assert "a.csv" in str(raised.value)
    assert list((tmp_path / "out").glob("part-*")) == []
    assert one.untouched  # so the batch is dropped, and the file may be repaired


def test_malformed_json_stops_the_batch_with_the_line(
    flow: Callable[..., Flow], tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.json", '{"id": 1}\n{"id": "x"}\n')
    one = flow(schema="id BIGINT")
    with pytest.raises(ToleranceExceededError, match=r'\{"id": "x"\}'):
        one.run(batch(one, 1, Position()))
    assert list((tmp_path / "out").glob("part-*")) == []


def test_tolerated_malformed_rows_are_dead_letters_with_their_text(
    flow: Callable[..., Flow], tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.csv", "id,n\n1,2\n2,x\n3\n")
    one = flow(dead=True, schema="id BIGINT, n INT")
    counts = one.run(batch(one, 1, Position()))
    assert (counts.read, counts.written, counts.rejected) == (3, 1, 2)
    assert written(tmp_path / "out") == [{"id": 1, "n": 2}]
    dead = DeltaTable(tmp_path / "topics" / "dead").to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in dead) == ["2,x", "3"]
