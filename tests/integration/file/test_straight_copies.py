"""Rows that go from files to files past the JVM arrive as all others do, exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrameWriter
from tests.integration.dataplane.flow_doubles import transform
from tests.integration.file.conftest import text_keys
from tests.integration.file.test_flow_of_files import NOW, TASK, batch
from tests.task_doubles import Context

from headrace.control.connector_settings import sink_def, source_def
from headrace.dataplane import DeadLetterWriter, Flow, FrameReader, Step
from headrace.dataplane.dead_letters import DeadLetterPart
from headrace.dataplane.sink_part import StagedPart
from headrace.model import Batch, ToleranceExceededError
from headrace.sdk import FrameSink, Position, ReadLimit, RecordError, SourceError
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.location import Location
from headrace.sdk.sink import ArrowWrite, StagedWrite
from headrace.topics import Topics
from headrace_plugins.connectors.delta.sink import DeltaSink, DeltaTask
from headrace_plugins.connectors.file import text_parts
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource
from headrace_plugins.transforms.cast import Cast

pytestmark = pytest.mark.spark

LINES = 2_000
READ = {"settle.ms": "0", "schema": "id BIGINT, name STRING"}
CSV = "id,name\n" + "".join(f'{n},"line {n}\nof ""it"""\n' for n in range(LINES))


@dataclass
class Copy:
    """A copy of the folder ``in`` to a target, and how its sink was called."""

    flow: Flow
    folder: Path
    straight: list[ArrowWrite | None] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        place = self.folder / "out"
        if (place / "_delta_log").exists():
            found = DeltaTable(str(place)).to_pyarrow_table()
        else:
            found = pq.ParquetDataset(sorted(place.glob("part-*"))).read()
        return sorted(found.to_pylist(), key=lambda row: row.get("id", row.get("value")))

    def staged(self) -> list[Path]:
        found = (path for path in (self.folder / "out").rglob("*part-*") if path.is_file())
        return [path for path in found if path.parent != self.folder / "out"]


Start = Callable[..., Copy]


@pytest.fixture(params=["file", "delta"])
def copy(spark: Any, context: Context, tmp_path: Path, request: Any, monkeypatch: Any) -> Start:
    """Start a copy; files of more than 16 KB are cut."""
    monkeypatch.setattr(text_parts, "_CHUNK_BYTES", 8 * 1024)
    monkeypatch.setattr(text_parts, "_PART_BYTES", 32 * 1024)
    (tmp_path / "in").mkdir()
    plugin = FileSink if request.param == "file" else DeltaSink
    keys = {"name": "c", "connector.class": request.param, "topics": "t"}
    keys |= {"path": f"{tmp_path}/out"} | ({"format": "parquet"} if plugin is FileSink else {})

    def start(
        *,
        dead: bool = False,
        lettered: bool = True,
        steps: Sequence[Step] = (),
        read: Mapping[str, str] = READ,
        **more: str,
    ) -> Copy:
        definition = plugin.config_def().merged(sink_def())
        sink = plugin.task(definition.parse(keys | text_keys(more)))
        assert isinstance(sink, FrameSink)
        sink.start(context)
        topic = Topics(Location.of(tmp_path / "topics")).get("dead")
        letters = DeadLetterWriter(
            task=TASK, topic=topic if lettered else None, appended=lambda _: None
        )
        place = {"name": "c", "connector.class": "file", "path": f"{tmp_path}/in"}
        definition = FileSource.config_def().merged(source_def())
        files = FileSource.task(definition.parse({**place, **read}))
        assert isinstance(files, FileSet)
        files.start(context)
        reader = FrameReader(files)
        flow = Flow(
            spark=spark,
            application="files-0",
            topic="t",
            source=reader,
            steps=steps,
            sinks=[sink],
            staging=Location.of(tmp_path / "divided"),
            dead_letters=letters if dead else None,
        )
        made = Copy(flow, tmp_path)
        offer = sink.arrow_write

        def offered(*args: Any) -> ArrowWrite | None:
            made.straight.append(offer(*args))
            return made.straight[-1]

        monkeypatch.setattr(sink, "arrow_write", offered)
        return made

    return start


def test_a_large_file_arrives_once_however_often_its_batch_runs(
    copy: Start, tmp_path: Path
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    first = copy()
    one = batch(first.flow, 1, Position())
    counts = first.flow.run(one)
    assert (counts.read, counts.written, counts.rejected) == (LINES, LINES, 0)
    expected = [{"id": n, "name": f'line {n}\nof "it"'} for n in range(LINES)]
    assert first.rows() == expected
    assert len(first.straight) == 1
    assert first.straight[0] is not None
    again = copy()
    assert again.flow.run(replace(one, again=True, epoch=2)).written == LINES
    assert again.rows() == expected


def test_lines_of_text_are_the_values_of_a_column(copy: Start, tmp_path: Path) -> None:
    (tmp_path / "in/a.txt").write_text("one\n\ntwo")
    one = copy(read={"settle.ms": "0"})
    assert one.flow.run(batch(one.flow, 1, Position())).written == 3
    assert one.rows() == [{"value": ""}, {"value": "one"}, {"value": "two"}]


def test_json_lines_go_as_csv_does(copy: Start, tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "name": f"line {n}\n", "more": [n]}) for n in range(LINES)]
    lines[7] += lines[8]
    lines[9] = '{"id": "9"}'
    (tmp_path / "in/a.json").write_text("\n".join(lines))
    one = copy(dead=True)
    counts = one.flow.run(batch(one.flow, 1, Position()))
    assert (counts.read, counts.written, counts.rejected) == (LINES, LINES - 2, 2)
    good = [n for n in range(LINES) if n not in {7, 9}]
    assert one.rows() == [{"id": n, "name": f"line {n}\n"} for n in good]
    assert [write is not None for write in one.straight] == [True]
    letters = Topics(Location.of(tmp_path / "topics")).get("dead")
    files = sorted(Path(letters.location.local).rglob("*.parquet"))
    headers = str([pq.read_table(file).to_pylist() for file in files])
    assert "a.json, line 8" in headers
    assert "`id` BIGINT: invalid value" in headers


def test_bad_records_are_letters_with_their_lines(copy: Start, tmp_path: Path) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    (tmp_path / "in/b.csv").write_text("id,name\n-1,x\noops,y\n-2\n")
    one = copy(dead=True)
    counts = one.flow.run(batch(one.flow, 1, Position()))
    assert (counts.written, counts.rejected) == (LINES + 1, 2)
    assert counts.causes == {"TASK_POLL RecordError": 2}
    assert len(one.rows()) == LINES + 1
    letters = Topics(Location.of(tmp_path / "topics")).get("dead")
    files = sorted(Path(letters.location.local).rglob("*.parquet"))
    headers = str([pq.read_table(file).to_pylist() for file in files])
    assert "b.csv, line 3" in headers
    assert "1 values instead of 2" in headers


def test_files_are_read_once_also_for_the_letters(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    (tmp_path / "in/b.csv").write_text("id,name\n-1,x\noops,y\n")
    one = copy(dead=True)
    stage = DeadLetterPart.stage
    kept: list[Path] = []
    left: list[Path] = []

    def commit(part: StagedPart) -> None:
        left.extend((tmp_path / "divided").rglob("*.arrow"))
        as_ever(part)

    as_ever = StagedPart.commit
    monkeypatch.setattr(StagedPart, "commit", commit)

    def stage_of_none(part: DeadLetterPart, *args: Any) -> Any:
        kept.extend((tmp_path / "divided").rglob("*.arrow"))
        (tmp_path / "in").rename(tmp_path / "away")
        letters = stage(part, *args)
        (tmp_path / "away").rename(tmp_path / "in")
        return letters

    monkeypatch.setattr(DeadLetterPart, "stage", stage_of_none)
    counts = one.flow.run(batch(one.flow, 1, Position()))
    assert (counts.rejected, counts.causes) == (1, {"TASK_POLL RecordError": 1})
    assert len(kept) == 1
    assert not left  # a process that is killed later leaves none


def test_without_a_topic_for_them_rejected_records_are_counted_by_cause(
    copy: Start, tmp_path: Path
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    (tmp_path / "in/b.csv").write_text("id,name\n-1,x\noops,y\n-2\n")
    one = copy(dead=True, lettered=False)
    counts = one.flow.run(batch(one.flow, 1, Position()))
    assert (counts.written, counts.causes) == (LINES + 1, {"TASK_POLL RecordError": 2})
    assert not (tmp_path / "divided").exists()


def test_a_file_that_is_replaced_before_rejected_records_are_read_again_is_named(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in/b.csv"
    file.write_text("id,name\n-1,x\noops,y\n")
    one = copy(dead=True, lettered=False)
    planned, stage = batch(one.flow, 1, Position()), DeadLetterPart.stage

    def replaced(part: DeadLetterPart, *args: Any) -> Any:
        file.write_text("id,name\n-1,x\n22222,y\n")
        return stage(part, *args)

    monkeypatch.setattr(DeadLetterPart, "stage", replaced)
    with pytest.raises(RangeChangedError, match=re.escape(str(file))):
        one.flow.run(planned)


def test_files_of_a_straight_copys_abandoned_attempt_are_not_delivered(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A record that only the sink refuses ends the straight copy, whose other parts may go on
    # for a while. Then Spark writes the batch to the same folder.
    (tmp_path / "in/a.csv").write_text(CSV)
    one = copy(dead=True)
    [sink] = one.flow.sinks
    offer, offered = sink.arrow_write, list[ArrowWrite]()
    stray = pa.record_batch({"id": pa.array([-9], pa.int64()), "name": ["stray"]})

    def refuse(*_: Any) -> Any:
        raise RecordError(problem="The sink refuses a record.")

    def refusing(*args: Any) -> ArrowWrite:
        found = offer(*args)
        assert found is not None
        offered.append(found)
        return replace(found, staged=refuse)

    def amid_late_writes(spark_write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*args: Any, **options: Any) -> Any:
            assert offered[0].write(98, iter([stray]))
            spark_write(*args, **options)
            assert offered[0].write(99, iter([stray]))

        return written

    monkeypatch.setattr(sink, "arrow_write", refusing)
    name = "parquet" if isinstance(sink, DeltaTask) else "save"
    monkeypatch.setattr(DataFrameWriter, name, amid_late_writes(getattr(DataFrameWriter, name)))
    assert one.flow.run(batch(one.flow, 1, Position())).written == LINES
    assert len(one.rows()) == LINES


def test_rejected_records_of_an_attempt_that_was_killed_are_deleted_by_the_next(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in/a.csv").write_text("id,name\n-1,x\noops,y\n")

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    first = copy(dead=True)
    one = batch(first.flow, 1, Position())
    with monkeypatch.context() as patch:
        patch.setattr(Location, "delete_folder", lambda _: True)  # a killed process does not
        patch.setattr(DeadLetterPart, "stage", die)
        with pytest.raises(Killed):
            first.flow.run(one)
    assert list((tmp_path / "divided").rglob("*.arrow"))
    assert copy(dead=True).flow.run(replace(one, again=True, epoch=2)).rejected == 1
    assert not list((tmp_path / "divided").rglob("*.arrow"))


def test_a_bad_record_stops_a_task_that_tolerates_none(copy: Start, tmp_path: Path) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    one = copy()
    one.flow.run(batch(one.flow, 1, Position()))
    (tmp_path / "in/b.csv").write_text("id,name\noops,y\n")
    at = batch(one.flow, 1, Position()).end
    with pytest.raises(
        ToleranceExceededError, match=r"`id` BIGINT: invalid value 'oops'"
    ) as no:
        one.flow.run(Batch(TASK, 2, 1, Position.of(*_place(at, 1)), at, NOW))
    assert no.value.record == "oops,y"
    assert len(one.rows()) == LINES
    assert not [path for path in one.staged() if "000000000002" in str(path)]


def _place(end: Position, files: int) -> tuple[dict[str, Any], dict[str, Any]]:
    ((partition, _),) = end.items()
    return dict(partition), {"files": files}


def test_a_worker_that_fails_leaves_nothing(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    (tmp_path / "in/b.csv.gz").write_bytes(b"\x1f\x8b not gzip")
    one = copy(dead=True)
    with pytest.raises(Exception, match=r"b\.csv\.gz"):
        one.flow.run(batch(one.flow, 1, Position()))
    assert one.staged() == []


def test_a_part_that_is_lost_stops_the_batch(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    one = copy()
    (sink,) = one.flow.sinks
    offer = sink.arrow_write

    def losing(*args: Any) -> ArrowWrite:
        write = offer(*args)
        assert write is not None

        def staged(names: Sequence[str]) -> StagedWrite:
            next((tmp_path / "out").rglob("rows-*.parquet")).unlink()
            return write.staged(names)

        return replace(write, staged=staged)

    monkeypatch.setattr(sink, "arrow_write", losing)
    with pytest.raises(SourceError, match=f"read {LINES} records but wrote"):
        one.flow.run(batch(one.flow, 1, Position()))
    assert one.staged() == []


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a target that its readers see, by name."""
    if (folder / "_delta_log").exists():
        found = [Path(uri.removeprefix("file://")) for uri in DeltaTable(folder).file_uris()]
    else:
        found = sorted(folder.glob("part-*"))
    return {path.name: path.read_bytes() for path in found}


OTHERS = pa.RecordBatch.from_pylist(
    [{"id": -1, "name": "late"}],
    schema=pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())]),
)


def test_an_attempt_that_ends_after_the_commit_changes_nothing(
    copy: Start, tmp_path: Path
) -> None:
    """Spark may have given up an attempt of a part that goes on, on an executor it lost."""
    (tmp_path / "in/a.csv").write_text(CSV)
    one = copy()
    first = batch(one.flow, 1, Position())
    one.flow.run(first)
    rows, files = one.rows(), files_in(tmp_path / "out")
    (write,) = one.straight
    assert write is not None
    write.write(0, iter([OTHERS]))
    assert files_in(tmp_path / "out") == files
    (tmp_path / "in/b.csv").write_text("id,name\n5000,x\n")
    again = copy()
    assert again.flow.run(replace(first, again=True, epoch=2)).written == LINES
    assert files_in(tmp_path / "out") == files
    at = again.flow.source.latest(first.end, ReadLimit())
    again.flow.run(Batch(TASK, 2, 2, first.end, at, NOW))
    assert again.rows() == [*rows, {"id": 5000, "name": "x"}]
    assert files.items() <= files_in(tmp_path / "out").items()
    write.write(0, iter([OTHERS]))
    assert again.rows() == [*rows, {"id": 5000, "name": "x"}]


def test_only_the_attempts_count_whose_results_the_driver_has(
    copy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in/a.csv").write_text(CSV)
    one = copy()
    (sink,) = one.flow.sinks
    offer = sink.arrow_write

    def speculating(*args: Any) -> ArrowWrite:
        write = offer(*args)
        assert write is not None

        def staged(names: Sequence[str]) -> StagedWrite:
            for number in range(len(names)):
                write.write(number, iter([OTHERS]))
            return write.staged(names)

        return replace(write, staged=staged)

    monkeypatch.setattr(sink, "arrow_write", speculating)
    assert one.flow.run(batch(one.flow, 1, Position())).written == LINES
    assert [row["id"] for row in one.rows()] == list(range(LINES))
    assert {path.name for path in one.staged()} <= files_in(tmp_path / "out").keys()


def test_a_chain_needs_spark(copy: Start, tmp_path: Path) -> None:
    (tmp_path / "in/a.csv").write_text("id,name\n1,2\n")
    one = copy(steps=[Step(transform(Cast, "cast", spec="name:int32"))])
    assert one.flow.run(batch(one.flow, 1, Position())).written == 1
    assert one.rows() == [{"id": 1, "name": 2}]
    assert one.straight == []


def test_folders_by_values_need_spark(copy: Start, tmp_path: Path) -> None:
    (tmp_path / "in/a.csv").write_text("id,name\n1,x\n")
    one = copy(partition_by="name")
    assert one.flow.run(batch(one.flow, 1, Position())).written == 1
    assert one.straight == [None]
