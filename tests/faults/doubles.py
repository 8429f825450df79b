"""A task with the real loop, flow, sinks and dead letters, that moves rows without Spark.

Only what Spark does is done by pyarrow: to read the rows of a range, and to stage them. The
rest (marks, receipts, commits, letters, stores) is what runs in production.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults import database_targets
from tests.faults.database_source import TableNumbers
from tests.faults.workload import delta_ids, folder_parquet_ids, line_ids, topic_ids
from typing_extensions import override

from headrace.control import SinkPlan
from headrace.dataplane import TopicWriter
from headrace.dataplane.chain import Routes
from headrace.dataplane.dead_letters import DeadLetterWriter, Staged
from headrace.dataplane.flow import Flow
from headrace.dataplane.sink_part import SinkPart, StagedRows
from headrace.dataplane.sources import SourceFrame
from headrace.dataplane.streams import StreamFrame, TransformedStream
from headrace.model import Batch, Counts, Lease, TaskId
from headrace.runtime.tasks import sink_names
from headrace.sdk import (
    FrameSink,
    Lag,
    Mark,
    Position,
    ReadLimit,
    Schema,
    SinkBatch,
    SinkConnector,
)
from headrace.sdk.arrow import to_arrow
from headrace.sdk.config import Config
from headrace.sdk.delta import staged_files, staging_folder
from headrace.sdk.keyed_rows import DELETED
from headrace.sdk.location import Location
from headrace.sdk.sink import StagedWrite
from headrace.store import Store
from headrace.topics import LETTERS, Topics
from headrace.topics.segments import topic_row_schema
from headrace.worker import BatchLoop
from headrace_plugins.connectors.delta import commit as delta_commit
from headrace_plugins.connectors.delta.columns import Fit
from headrace_plugins.connectors.delta.commit import StagedAppend
from headrace_plugins.connectors.delta.sink import DeltaSink, DeltaTask, table_receipt
from headrace_plugins.connectors.delta.table import HIDDEN, open_table
from headrace_plugins.connectors.file.folder import (
    FolderSink,
    _Folder,
    _StagedFiles,
)
from headrace_plugins.connectors.file.linefile import LineFileSink, _LineFile, _StagedLines
from headrace_plugins.connectors.file.output import HOUSEKEEPING, SinkSettings
from headrace_plugins.connectors.file.output import staging_folder as file_staging
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.mapped_records import StagedTables

TASK = TaskId("copy", 0)
TOPIC = "rows"
DEAD = "copy.dlq"
ROWS = 10
"""How many rows a batch has."""
BAD_EVERY = 5
LEASE = timedelta(seconds=30)
VALUE = Schema.struct({"id": Schema.int64(optional=True)})
Reach = Callable[[str], None]


def ignore(_: str) -> None:
    """Pass a step by."""


# What Spark's Python worker would do is done here and now.
setattr(delta_commit, "run_in_workers", lambda _spark, works: [work() for work in works])  # noqa: B010


@dataclass
class Numbers:
    """A source of so many rows as there are: each is its number."""

    available: int
    reach: Reach = ignore

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = min(_at(start) + (limit.rows or ROWS), self.available)
        self.reach("after plan")
        return start if end == _at(start) else Position.of({"rows": 0}, {"row": end})

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        self.reach("before acknowledge")

    def read(self, spark: Any, start: Position, end: Position) -> SourceFrame:
        return SourceFrame(None)

    def ids(self, start: Position, end: Position) -> list[int]:
        return list(range(_at(start), _at(end)))

    def stop(self) -> None:
        pass


def _at(position: Position) -> int:
    return next((int(offset["row"]) for _, offset in position.items()), 0)


class NumberFlow(Flow):
    """The flow, with rows by pyarrow."""

    @override
    def _streams(self, data: SourceFrame) -> list[StreamFrame]:
        return [StreamFrame(None, TOPIC, self.application)]  # type: ignore[arg-type]

    @override
    def _transform(
        self, stream: StreamFrame, batch: Batch, cached: ExitStack
    ) -> TransformedStream:
        nothing: Any = None
        routes = Routes(TOPIC, TOPIC, self.staging, batch)
        return TransformedStream(stream, nothing, nothing, routes, TOPIC)

    @override
    def _stage(
        self, transformed: TransformedStream, batch: Batch, part: SinkPart
    ) -> StagedRows:
        ids = self._ids(batch)
        bad = self._bad(batch)
        good = [n for n in ids if n not in bad]
        to = SinkBatch(part.mark, TOPIC, VALUE, None)
        table: Any = pa.table({"id": pa.array(good, pa.int64())})
        write = part.sink.write(table, to)
        counts = Counts(read=len(ids), written=len(good), rejected=len(bad))
        rejected: Any = partial(self._bad, batch)
        return StagedRows(write=write, counts=counts, rejected=rejected)

    def _bad(self, batch: Batch) -> list[int]:
        return [n for n in self._ids(batch) if is_bad(n)] if self.dead_letters else []

    def _ids(self, batch: Batch) -> list[int]:
        source = cast("Numbers | TableNumbers", self.source)
        return source.ids(batch.start, batch.end)


def is_bad(number: int) -> bool:
    """Return whether a row is dead-lettered, where rows are."""
    return number % BAD_EVERY == BAD_EVERY - 1


class NumberLetters(DeadLetterWriter):
    """Dead letters that are staged by pyarrow."""

    def rows(self, rejected: Any, which: str, batch: Batch, sink: int | None) -> Any:
        return _Rows(rejected if which == "chain_error IS NOT NULL" else ())

    def counted(self, rows: Any) -> Staged:
        return Staged({"TRANSFORMATION Bad": len(rows.ids)})

    def staged(self, rows: Any, mark: Mark) -> Staged:
        assert self.topic is not None
        schema = to_arrow(self.topic.prepare(LETTERS))
        letters = [{"value": str(n), "offset": n} for n in rows.ids]
        folder = self.topic.location.local / staging_folder(mark, "letters")
        _write(pa.Table.from_pylist(letters, schema), folder)
        files = staged_files(self.topic.location, mark, folder="letters")
        return replace(self.counted(rows), files=files)


@dataclass
class _Rows:
    """Rejected rows; the chain rejects all of them."""

    ids: Sequence[int]


def _write(table: pa.Table, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "part-00000.parquet"
    pq.write_table(table, path)
    return path


class _Topic(TopicWriter):
    def write(self, frame: Any, batch: SinkBatch) -> StagedWrite:
        topic = self._topic
        schema = to_arrow(topic.prepare(topic_row_schema(VALUE, None)))
        rows = [{"value": {"id": n}, "offset": n} for n in frame.column("id").to_pylist()]
        _write(
            pa.Table.from_pylist(rows, schema),
            topic.location.local / staging_folder(batch.mark),
        )
        return self.staged(batch.mark, staged_files(topic.location, batch.mark))


class _Delta(DeltaTask):
    def write(self, frame: Any, batch: SinkBatch) -> StagedWrite:
        tables = [(target.name, path) for target, path in self._tables(batch.topic)]
        if len(tables) == 1:
            return self._stage(frame, batch, tables[0][1])
        receipts = {name: table_receipt(path, batch.mark) for name, path in tables}
        held = {name: receipt for name, receipt in receipts.items() if receipt is not None}
        parts: list[StagedWrite] = []
        try:
            parts.extend(
                self._stage(frame, batch, path) for name, path in tables if name not in held
            )
        except BaseException:
            for part in parts:
                part.abort()
            raise
        return StagedTables(parts=parts, held=held, rows=frame.num_rows)

    def _stage(self, frame: Any, batch: SinkBatch, path: Location) -> StagedWrite:
        fields = ({"name": "id", "type": "long", "nullable": True, "metadata": {}},)
        no_spark: Any = None
        to = self._destination(no_spark, path, open_table(path), Fit(fields, {"id": "id"}))
        upsert = self.settings.upsert
        folder = HIDDEN if upsert else "data"
        if upsert:
            frame = frame.append_column(DELETED, pa.array([False] * frame.num_rows))
        _write(frame, to.path.local / staging_folder(batch.mark, folder))
        files = staged_files(to.path, batch.mark, folder=folder, stats=not upsert)
        if not upsert:
            return StagedAppend(to=to, mark=batch.mark, files=files)
        rows = frame.num_rows
        return self._staged_rows(to, batch.mark, files=files, rows=rows, keys=["id"])


class _Folders(FolderSink):
    def write(self, frame: Any, batch: SinkBatch) -> StagedWrite:
        root = self._settings.target(batch.topic)
        folder = file_staging(root / HOUSEKEEPING, batch.mark)
        path = Location.of(_write(frame, folder.local))
        return _StagedFiles(_Folder(root), batch.mark, folder, (path,), frame.num_rows)


class _Lines(LineFileSink):
    def write(self, frame: Any, batch: SinkBatch) -> StagedWrite:
        target = _LineFile(self._settings.target(batch.topic))
        folder = file_staging(target.house, batch.mark)
        folder.local.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{n}\n" for n in frame.column("id").to_pylist())
        (folder.local / "part-00000.txt").write_text(lines)
        return _StagedLines(target, batch.mark, folder, frame.num_rows)


@dataclass(frozen=True)
class SinkKind:
    """A sink of the matrix: how it is made over a folder, and how its target is read."""

    make: Callable[[Path], FrameSink]
    read: Callable[[Path], list[object]]
    plan: Callable[[Path], SinkPlan | None] = lambda _: None
    """Gives the plan of a sink that is a plugin, which names it in marks."""


def _plugin(
    connector: type[SinkConnector],
    make: Callable[[Config], FrameSink],
    path: str,
    read: Callable[[Path], list[object]],
    **more: str,
) -> SinkKind:
    def config(folder: Path) -> dict[str, str]:
        return {"path": str(folder / path), **more}

    return SinkKind(
        lambda folder: make(connector.config_def().parse(config(folder))),
        lambda folder: read(folder / path),
        lambda folder: SinkPlan(connector, config(folder)),
    )


def _ids_of_both(one: Path, other: Path) -> list[object]:
    """Return the ids of two tables that are to be equal, all of both where they are not."""
    ids, others = delta_ids(one, "id"), delta_ids(other, "id")
    return ids if sorted(map(str, ids)) == sorted(map(str, others)) else [*ids, *others]


def _database(kind: str) -> SinkKind:
    return SinkKind(
        lambda folder: database_targets.make(kind, folder),
        lambda folder: database_targets.read(kind, folder),
        lambda folder: SinkPlan(
            database_targets.connector(kind), database_targets.config(kind, folder)
        ),
    )


FILES: Mapping[str, SinkKind] = {
    "topic": SinkKind(
        lambda at: _Topic(Topics(Location.of(at)).get("target"), ignore),
        lambda at: topic_ids(at / "target", part="id"),
    ),
    "delta append": _plugin(DeltaSink, _Delta, "append", lambda path: delta_ids(path, "id")),
    "delta upsert": _plugin(
        DeltaSink,
        _Delta,
        "upsert",
        lambda path: delta_ids(path, "id"),
        mode="upsert",
        **{"key.fields": "id"},
    ),
    "delta tables": _plugin(
        DeltaSink,
        _Delta,
        "${table}",
        lambda path: _ids_of_both(path.with_name("one"), path.with_name("other")),
        **{"table.mapping": '[{"from": "*", "to": "one"}, {"from": "*", "to": "other"}]'},
    ),
    "folder": _plugin(
        FileSink,
        lambda config: _Folders(SinkSettings.from_config(config)),
        "folder",
        folder_parquet_ids,
    ),
    "lines": _plugin(
        FileSink,
        lambda config: _Lines(SinkSettings.from_config(config)),
        "lines.txt",
        lambda path: [int(str(line)) for line in line_ids(path)],
        mode="append",
    ),
}
"""Sinks whose targets Python's own calls write."""

SINKS: Mapping[str, SinkKind] = {
    **FILES,
    **{kind: _database(kind) for kind in ("sqlite", *database_targets.SERVERS)},
}


@dataclass
class NumberTask:
    """One owner of the task, as a new process would have it.

    Args:
        store: The store that all owners share.
        folder: Where the targets are.
        sinks: The kinds of its sinks, in their order.
        owner: Its name.
        now: The present, as it believes.
        tolerant: Whether bad rows are dead-lettered.
        available: How many rows the source has.
        reach: Called at each step of a batch.
        limit: How many rows a batch has at most.
        chain: Names what the records go through.
        source: The kind of the database that they are read from; empty for none.
    """

    store: Store
    folder: Path
    sinks: Sequence[str]
    owner: str = "one"
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    tolerant: bool = False
    available: int = ROWS
    reach: Reach = ignore
    limit: int = ROWS
    chain: str = ""
    source: str = ""
    loop: BatchLoop = field(init=False)
    _made: list[FrameSink | Numbers | TableNumbers] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Take the lease and start."""
        lease = self.store.lease(TASK, self.owner, self.now(), LEASE)
        self.reach("after lease")
        self.loop = self._loop(lease)

    def step(self) -> Batch | None:
        """Move one batch; source and sinks let go of what they hold until the next."""
        try:
            return self.loop.step()
        finally:
            for each in self._made:
                each.stop()

    def to_end(self) -> int:
        """Move all that is left; return how many batches that took."""
        batches = 0
        while self.step() is not None:
            batches += 1
        return batches

    def _loop(self, lease: Lease) -> BatchLoop:
        reader = (
            TableNumbers(self.source, self.folder, self.available, self.reach)
            if self.source
            else Numbers(self.available, self.reach)
        )
        self._made.append(reader)
        flow = NumberFlow(
            spark=None,  # type: ignore[arg-type]
            application=f"copy-{self.store.register('copy')}-0",
            topic=TOPIC,
            source=reader,
            steps=(),
            sinks=[self._sink(number, kind) for number, kind in enumerate(self.sinks)],
            names=self._names(),
            chain=self.chain,
            staging=Location.of(self.folder / "staging"),
            dead_letters=self._letters() if self.tolerant else None,
        )
        return BatchLoop(
            store=cast("Store", _Stepping(self.store, self.reach)),
            lease=lease,
            reader=reader,
            flow=flow,
            limit=ReadLimit(rows=self.limit),
            clock=self.now,
        )

    def _names(self) -> Sequence[str]:
        """Return what the sinks are called in marks; a topic stands alone, without a name."""
        plans = [SINKS[kind].plan(self.folder) for kind in self.sinks]
        return sink_names([plan for plan in plans if plan is not None]) or [""]

    def _sink(self, number: int, kind: str) -> FrameSink:
        sink = SINKS[kind].make(self.folder)
        self._made.append(sink)
        write = sink.write

        def writing(frame: Any, batch: SinkBatch) -> StagedWrite:
            done = write(frame, batch)
            self.reach(f"after stage {number}")
            return _SteppingStaged(done, number, self.reach)

        sink.write = writing  # type: ignore[method-assign]
        return sink

    def _letters(self) -> DeadLetterWriter:
        topic = Topics(Location.of(self.folder)).get(DEAD)
        letters = NumberLetters(task=TASK, topic=topic, appended=ignore)
        append = letters.append

        def appending(staged: Staged, mark: Mark, *, shared: bool = False) -> None:
            if shared and staged.files:
                self.reach("before letters")
            append(staged, mark, shared=shared)
            if shared and staged.files:
                self.reach("after letters")

        object.__setattr__(letters, "append", appending)
        return letters


class _Stepping:
    """A store that tells when a batch is begun and finished."""

    def __init__(self, store: Store, reach: Reach) -> None:
        self._store, self._reach = store, reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin_batch(self, *arguments: Any, **named: Any) -> Batch:
        batch = self._store.begin_batch(*arguments, **named)
        self._reach("after begin")
        return batch

    def finish_batch(self, *arguments: Any, **named: Any) -> Batch:
        self._reach("before finish")
        return self._store.finish_batch(*arguments, **named)


@dataclass
class _SteppingStaged:
    """A staged write that tells when it is committed."""

    staged: StagedWrite
    number: int
    reach: Reach

    @property
    def rows(self) -> int:
        return self.staged.rows

    def commit(self, receipt: str) -> None:
        self.reach(f"before commit {self.number}")
        self.staged.commit(receipt)
        self.reach(f"after commit {self.number}")

    def abort(self) -> None:
        self.staged.abort()


def found(folder: Path, kind: str) -> list[object]:
    """Return what an independent reader sees in a target, in order of the ids."""
    return sorted(SINKS[kind].read(folder), key=lambda n: int(str(n)))


def found_letters(folder: Path) -> list[int]:
    """Return the ids of the dead letters."""
    return sorted((int(str(n)) for n in topic_ids(folder / DEAD)), key=int)


def expected(rows: int, *, tolerant: bool) -> list[int]:
    """Return what each target must hold when so many rows were moved."""
    return [n for n in range(rows) if not (tolerant and is_bad(n))]


def steps(sinks: int, *, tolerant: bool) -> list[str]:
    """Return all steps of a batch, in their order."""
    staged_ = [f"after stage {n}" for n in range(sinks)]
    committed = [f"{when} commit {n}" for n in range(sinks) for when in ("before", "after")]
    if tolerant:
        at = committed.index("after commit 0") + 1
        committed[at:at] = ["before letters", "after letters"]
    ends = ["before finish", "before acknowledge"]
    return ["after lease", "after plan", "after begin", *staged_, *committed, *ends]
