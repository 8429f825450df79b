"""Stages a batch: writes its files into its topics' folders, before a version adds them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.capture.process import CaptureSpec
from headrace.capture.rows import Part, Rejected, Sorter, TopicRows, fit, letters, rejected_row
from headrace.capture.targets import Addition, Targets
from headrace.evolution import Move, Reconciliations
from headrace.evolution.apply_arrow import Slices, moved_array, sieve
from headrace.model import MOST_LINES, Counts, ErrorLog, ToleranceExceededError
from headrace.sdk import RecordError, Schema, SchemaMemory
from headrace.sdk.arrow import conform, to_arrow, to_arrow_field
from headrace.sdk.delta import AddedFile
from headrace.sdk.folders import folder_name
from headrace.sdk.sparktypes import schema_to_json
from headrace.topics import LETTERS, Topic

if TYPE_CHECKING:
    from headrace.capture.capture_thread import Gathering

_STAGE = "TASK_POLL"
_CAUSE = f"{_STAGE} RecordError"

log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch whose files are written.

    Args:
        additions: The files to add to each topic.
        counts: The record counts.
    """

    additions: Sequence[Addition]
    counts: Counts


@dataclass
class Stager:
    """Stages the batches of one capture. Only the capture's thread uses it."""

    spec: CaptureSpec
    targets: Targets
    schemas: SchemaMemory
    _sorter: Sorter = field(init=False)
    _reconciled: Reconciliations = field(default_factory=Reconciliations)
    _prepared: dict[tuple[str, Schema], pa.Schema] = field(default_factory=dict)
    _stored: dict[str, Schema | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sorter = Sorter(
            self.spec.topic, self._shape, self.spec.evolution, self.spec.stream
        )

    def stage(self, gathering: Gathering) -> Staged:
        """Write the files of a batch.

        Raises ToleranceExceededError, with nothing written, if a record is rejected and errors
        are not tolerated, and SchemaChangeError if a schema change is rejected.
        """
        now = datetime.now(UTC)
        came, rejected = self._sorter.sort(gathering.polls, now)
        topics: dict[str, TopicRows] = {}
        for name, rows in came.items():  # all of them, before the first table changes
            known = self.targets.topic(name).value_schema()
            topics[name], bad = self._evolved(name, rows, known)
            rejected += bad
        fitted: dict[str, tuple[list[pa.RecordBatch], pa.Schema]] = {}
        for name, rows in topics.items():
            if not rows.parts:
                continue
            schema = self._prepare(name, rows)
            good, bad = fit(name, rows, schema)
            rejected += bad
            if good:
                fitted[name] = good, schema
        additions = self._reject(rejected, now)
        size_bytes = 0
        for name, (batches, schema) in fitted.items():
            file = _write(self.targets.topic(name), self.spec.application, batches, schema)
            size_bytes += file.size_bytes
            additions = [Addition(name, self.spec.application, [file]), *additions]
        written = sum(b.num_rows for batches, _ in fitted.values() for b in batches)
        counts = Counts(
            read=gathering.rows,
            written=written,
            rejected=len(rejected),
            size_bytes=size_bytes,
            causes={_CAUSE: len(rejected)} if rejected else {},
        )
        return Staged(additions, counts)

    def discard(self, staged: Staged) -> None:
        """Delete the files of a batch that was never begun."""
        for file in self.targets.files(staged.additions):
            file.delete()

    def keep(self, staged: Staged) -> None:
        """Protect the files from cleanup for a while: they are about to be committed."""
        for file in self.targets.files(staged.additions):
            file.touch()

    def _prepare(self, name: str, rows: TopicRows) -> pa.Schema:
        schema = rows.schema()
        known = self._prepared.get((name, schema))
        if known is None:
            known = to_arrow(self.targets.topic(name).prepare(schema, self.spec.retention))
            self._prepared[name, schema] = known
        if rows.parts[-1].inferred:
            self._sorter.settle(name, rows.parts[-1].value)
            self._remember(name)
        return known

    def _remember(self, name: str) -> None:
        """Store the inferred schema of plain JSON if it has changed."""
        _, value = self._sorter.inferred.get(name, (None, None))
        if value is not None and value != self._stored.get(name):
            self.schemas.put(name, value)
            self._stored[name] = value

    def _shape(self, name: str) -> tuple[Schema | None, Schema | None]:
        """Return the known schemas of a topic's key and value."""
        topic = self.targets.topic(name)
        if not topic.exists():
            return None, self.schemas.get(name)
        fields = {f.name: f.schema for f in topic.schema().fields}
        return fields.get("key"), fields.get("value")

    def _evolved(
        self, topic: str, rows: TopicRows, known: Schema | None
    ) -> tuple[TopicRows, list[Rejected]]:
        """Return rows with the evolved schemas of their topic, and the rejected rows.

        Schemas are applied in the order of the rows: each is a change of the one before.

        Raises:
            SchemaChangeError: The policy rejects a change.
        """
        fitted, rejected = TopicRows(), []
        for part in rows.parts:
            if known is None or known == part.value:
                known = part.value
                fitted.parts.append(part)
                continue
            policy = self.spec.evolution
            reconciled = self._reconciled.of(topic, topic, known, part.value, policy)
            move = partial(_moved, part, reconciled.move)
            parts, bad = sieve(Slices(part.batch), move, RecordError)
            known = reconciled.schema
            fitted.parts += parts
            rejected += [rejected_row(topic, part.batch.slice(at, 1), why) for at, why in bad]
        return fitted, rejected

    def _reject(self, rejected: Sequence[Rejected], now: datetime) -> list[Addition]:
        if not rejected:
            return []
        spec = self.spec
        if not spec.tolerates:
            # Guarantee 4: a record that cannot be delivered stops its task.
            first = rejected[0]
            raise ToleranceExceededError(
                stage=_STAGE,
                plugin=spec.class_path,
                exception="RecordError",
                message=first.error,
                record=(first.value or "")[:200],
            )
        context = {
            "connector": spec.connector,
            "task": spec.task,
            "stage": _STAGE,
            "class": spec.class_path,
        }
        rows = letters(
            rejected, context, now, schemas=self._schemas, headers=spec.context_headers
        )
        if spec.log_errors:
            shown = rows.slice(0, MOST_LINES).to_pylist()
            causes = [{**row["cause"], "timestamp": row["timestamp"]} for row in shown]
            ErrorLog(log.error, spec.log_messages).log(causes, len(rejected))
        if spec.dead_letters is None:
            return []
        topic = self.targets.topic(spec.dead_letters)
        schema = to_arrow(topic.prepare(LETTERS))
        application = f"{spec.application}/dlq"
        file = _write(topic, application, [rows], schema)
        return [Addition(spec.dead_letters, application, [file])]

    def _schemas(self, name: str) -> tuple[str | None, str | None]:
        key, value = self._shape(name)
        return key and schema_to_json(key), value and schema_to_json(value)


def _write(
    topic: Topic, application: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema
) -> AddedFile:
    table = pa.Table.from_batches(batches).select(
        [name for name in batches[0].schema.names if name != "offset"]
    )
    # The offset orders the rows within the version.
    offsets = pa.arange(0, table.num_rows)
    table = table.append_column("offset", offsets).select(schema.names).cast(schema)
    path = f"data/{folder_name(application)}/{uuid.uuid4().hex}.parquet"
    location = topic.location / path
    try:
        with location.open_output() as file:
            pq.write_table(table, file)
            return AddedFile(path, file.tell(), table.num_rows)
    except BaseException:
        location.delete()
        raise


def _moved(part: Part, move: Move, some: Any) -> Part:
    if move.source is None or not move.is_needed:
        return replace(part, batch=some.batch, value=move.target)
    column = pa.schema([to_arrow_field("value", move.source.replaced(optional=True))])
    value = moved_array(move, conform(some.batch.select(["value"]), column).column(0))
    place = some.batch.schema.get_field_index("value")
    return replace(part, batch=some.batch.set_column(place, "value", value), value=move.target)
