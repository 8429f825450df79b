"""A source's keys are changed while a batch is in doubt: all sinks get the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.integration.file.test_flow_of_files import TASK, batch

from headrace.control.task_plans import SourcePlan
from headrace.dataplane import DeadLetterWriter, Flow, FrameReader
from headrace.sdk import FrameSink, FrameSource, Position, StateError
from headrace.sdk.location import Location
from headrace.sdk.sink import StagedWrite
from headrace.topics import Topics
from headrace_plugins.connectors.file.source import FileSource

pytestmark = pytest.mark.spark

NUMBERS = {"schema": "id BIGINT, v INT"}
TEXTS = {"schema": "id BIGINT, v STRING", "header": "false"}


class TargetDownError(Exception):
    """A target is away."""


@dataclass
class Failing:
    """A staged write whose target is away."""

    staged: StagedWrite

    @property
    def rows(self) -> int:
        return self.staged.rows

    def commit(self, receipt: str) -> None:
        raise TargetDownError(receipt)

    def abort(self) -> None:
        self.staged.abort()


Build = Callable[..., Flow]


@pytest.fixture
def flow(spark: Any, source: Any, sink: Any, tmp_path: Path) -> Build:
    """Copy the folder ``in`` into the folders ``a`` and ``b``."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("id,v\n1,1\n2,x\n3,3\n")

    def build(keys: dict[str, str], *, known: bool = True) -> Flow:
        files: FrameSource = source(tmp_path / "in", **keys).task
        plan = SourcePlan(FileSource, {"path": str(tmp_path / "in")} | keys)
        topic = Topics(Location.of(tmp_path / "topics")).get("dead")
        return Flow(
            spark=spark,
            application="files-0",
            topic="t",
            source=FrameReader(files),
            steps=[],
            sinks=[sink(tmp_path / name) for name in ("a", "b")],
            names=["a", "b"],
            chain="abc",
            source_keys=plan.row_keys if known else None,
            staging=Location.of(tmp_path / "divided"),
            dead_letters=DeadLetterWriter(
                task=TASK, topic=topic, appended=lambda _: None, sinks=["a", "b"]
            ),
        )

    return build


def failing(sink: FrameSink, patch: pytest.MonkeyPatch) -> None:
    write = sink.write
    patch.setattr(sink, "arrow_write", lambda *_: None)
    patch.setattr(sink, "write", lambda *given: Failing(write(*given)))


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [str(path) for path in folder.glob("part-*")]
    table = ds.dataset(found, format="parquet").to_table()
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_sinks_get_a_batch_as_one_configuration_reads_it_or_the_task_stops(
    flow: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flow(NUMBERS)
    one = batch(first, 1, Position())
    failing(first.sinks[1], monkeypatch)
    with pytest.raises(TargetDownError):
        first.run(one)
    held = rows(tmp_path / "a")
    assert held == [{"id": 1, "v": 1}, {"id": 3, "v": 3}]
    again = replace(one, again=True, epoch=2)
    with pytest.raises(StateError, match="source's header and schema") as refused:
        flow(TEXTS).run(again)
    assert "Restore their previous values" in refused.value.fix
    assert not list((tmp_path / "b").glob("part-*"))
    counts = flow(NUMBERS).run(replace(again, epoch=3))
    assert (counts.read, counts.written, counts.rejected) == (3, 2, 1)
    assert rows(tmp_path / "b") == rows(tmp_path / "a") == held


def test_a_batch_of_an_earlier_version_goes_on(
    flow: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flow(NUMBERS, known=False)
    one = batch(first, 1, Position())
    failing(first.sinks[1], monkeypatch)
    with pytest.raises(TargetDownError):
        first.run(one)
    flow(NUMBERS).run(replace(one, again=True, epoch=2))
    assert rows(tmp_path / "b") == rows(tmp_path / "a")


def test_a_batch_that_no_sink_holds_is_read_as_is_configured_now(
    flow: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flow(NUMBERS)
    one = batch(first, 1, Position())
    failing(first.sinks[0], monkeypatch)
    with pytest.raises(TargetDownError):
        first.run(one)
    texts = {"schema": "id BIGINT, v STRING"}
    assert flow(texts).run(replace(one, again=True, epoch=2)).written == 3
    assert rows(tmp_path / "b") == rows(tmp_path / "a")
