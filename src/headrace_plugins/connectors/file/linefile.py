"""Appends each record as a line to one file, exactly once."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import SinkError
from headrace.sdk.location import Location, sync
from headrace.sdk.sink import StagedWrite
from headrace_plugins.connectors.file.output import (
    HOUSEKEEPING,
    Committed,
    PathSink,
    check_epoch,
    checked_below,
    discard_attempts,
    encoded,
    held_receipt,
    line_sql,
    read_json,
    staging_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Mark, SinkBatch


class LineFileSink(PathSink):
    """Kafka Connect's FileStreamSink: the value of each record becomes a line.

    Lines are in the records' order. Before a batch is appended, the file's length is stored in
    the folder ``_headrace`` next to the file: after a crash the file is truncated to that
    length and the batch is appended again (Guarantee 2). Several tasks may share a file.
    """

    ordered = True

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return _LineFile(self._settings.target(topic)).completed(mark)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        target = _LineFile(self._settings.target(batch.topic))
        staging = staging_folder(target.house, batch.mark)
        target.discard(staging)
        seen = Observation()
        lines = frame.coalesce(1).sortWithinPartitions("position")
        lines = lines.selectExpr(line_sql(batch.schema))
        writer = lines.observe(seen, F.expr("count(1) AS rows")).write
        # Nothing needs the file _SUCCESS, which would cost as much as the file with the lines.
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").text(
            staging.spark_path
        )
        return _StagedLines(target, batch.mark, staging, int(seen.get["rows"]))

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        target = _LineFile(self._settings.target(topic))
        if not target.path.exists():
            return None
        return _StagedLines(target, mark, staging_folder(target.house, mark), 0)


@dataclass(frozen=True)
class _StagedLines:
    """The staged lines of one attempt."""

    target: _LineFile
    mark: Mark
    staging: Location
    rows: int

    def commit(self, receipt: str) -> None:
        self.target.commit(self.mark, receipt, self.staging if self.rows else None)

    def abort(self) -> None:
        self.target.discard(self.staging)


@dataclass
class _State:
    """The state of the file: the newest batches, and the lines that are being appended."""

    applications: dict[str, Committed] = field(default_factory=dict)
    staged: str | None = None
    before_bytes: int = 0

    @classmethod
    def from_json(cls, tree: Any) -> _State:
        if tree is None:
            return cls()
        held = {name: Committed.from_json(one) for name, one in tree["applications"].items()}
        return cls(held, tree["staged"], tree["before_bytes"])


@dataclass(frozen=True)
class _LineFile:
    """A target file with its state in ``_headrace`` next to it.

    Only a local file can be appended to and truncated.
    """

    path: Location

    @property
    def house(self) -> Location:
        return self.path.parent / HOUSEKEEPING / encoded(self.path.name)

    @property
    def _state_file(self) -> Location:
        return self.house / "state.json"

    def completed(self, mark: Mark) -> str | None:
        """Finish an append that a crash interrupted; return the batch's receipt if it is in."""
        with (self.house / "lock").lock():
            state = self._finished()
            return held_receipt(state.applications.get(mark.application), mark)

    def commit(self, mark: Mark, receipt: str, staging: Location | None) -> None:
        """Append the staged lines, unless this attempt has done so already.

        If this fails, the lines stay in the staging folder: as soon as the state refers to
        them, they are the only copy of a batch that counts as committed.
        """
        with (self.house / "lock").lock():
            self._commit(mark, receipt, staging)
            discard_attempts(self.house, mark)

    def discard(self, staging: Location) -> None:
        """Remove staged lines, except those that must still be appended."""
        with (self.house / "lock").lock():
            if self._state().staged != self._name(staging):
                staging.delete_folder()

    def _commit(self, mark: Mark, receipt: str, staging: Location | None) -> None:
        state = self._finished()
        held = state.applications.get(mark.application)
        check_epoch(held, mark)
        if mark.wrote(held_receipt(held, mark)):
            return
        batch = Committed(mark.application, mark.batch, mark.epoch, receipt)
        state.applications[mark.application] = batch
        state.staged = None if staging is None else self._name(staging)
        found = self.path.info()
        state.before_bytes = 0 if found is None else found.size_bytes
        if staging is not None:
            # The state refers to the lines, so they must be durable before the state is.
            sync(_parts(staging), up_to=self.path.parent.parent)
        # Guarantee 2: from here on the batch is in the target, whatever happens.
        self._write(state)
        self._finished()

    def _name(self, staging: Location) -> str:
        return staging.relative_to(self.house)

    def _state(self) -> _State:
        return _State.from_json(read_json(self._state_file))

    def _finished(self) -> _State:
        """Append the lines that the state refers to; idempotent."""
        state = self._state()
        if state.staged is None:
            return state
        parts = _parts(checked_below(state.staged, self.house, self._state_file))
        if not parts:
            raise SinkError(
                problem=f"Cannot append a batch to {self.path}: its lines are gone from "
                f"{self.house / state.staged}.",
                fix="Restore that folder. If its lines may be lost, set staged to null in "
                f"{self._state_file}.",
            )
        with self.path.local.open("ab") as file:
            # The file may have been removed in the meantime; truncate must not extend it.
            file.truncate(min(state.before_bytes, file.tell()))
            file.seek(0, os.SEEK_END)
            for part in parts:
                with part.local.open("rb") as lines:
                    shutil.copyfileobj(lines, file, 1024 * 1024)
        sync([self.path], up_to=self.path.parent.parent)
        state.staged = None
        self._write(state)
        return state

    def _write(self, state: _State) -> None:
        self._state_file.put(json.dumps(asdict(state)), up_to=self.path.parent.parent)


def _parts(folder: Location) -> list[Location]:
    found = [entry.location for entry in folder.list() if entry.name.startswith("part-")]
    return sorted(found, key=str)
