"""Batches: the bounded steps of a task."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.sdk.mark import receipt_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.model.connector import TaskId
    from headrace.sdk import Position


class BatchState(StrEnum):
    """The states of a batch: begun (its intent is stored) or finished."""

    BEGUN = "begun"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Counts:
    """The record counts of a batch.

    Guarantee 4: ``read == written + filtered + rejected``, see ``balanced``.
    ``size_bytes`` is the size of the input if the source knows it, otherwise of the output.
    ``filters`` splits ``filtered`` by the alias of the transform, ``causes`` splits
    ``rejected`` by the stage and the class of the error, ``STAGE class``.

    With several sinks, the counts are those of the sink that wrote the fewest records, so that
    ``written`` records arrived at every sink. If the sinks differ, ``sinks`` contains the
    written and rejected records of each sink, by its number from 0.
    """

    read: int = 0
    written: int = 0
    filtered: int = 0
    rejected: int = 0
    size_bytes: int = 0
    filters: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of_sinks(cls, each: Sequence[Counts]) -> Counts:
        """Return the counts of a batch from the counts of each of its sinks, in order."""
        if not each:
            return cls()
        least = min(each, key=lambda counts: counts.written)
        if all(counts.written == least.written for counts in each):
            return least
        sinks = {str(number): _share(counts) for number, counts in enumerate(each)}
        return replace(least, sinks=sinks)

    @property
    def balanced(self) -> bool:
        """Return whether every record that was read is accounted for."""
        return self.read == self.written + self.filtered + self.rejected

    def plus(self, other: Counts) -> Counts:
        numbers = sorted({*self.sinks, *other.sinks}, key=int)
        return Counts(
            read=self.read + other.read,
            written=self.written + other.written,
            filtered=self.filtered + other.filtered,
            rejected=self.rejected + other.rejected,
            size_bytes=self.size_bytes + other.size_bytes,
            filters=_sum(self.filters, other.filters),
            causes=_sum(self.causes, other.causes),
            sinks={n: _sum(_of_sink(self, n), _of_sink(other, n)) for n in numbers},
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Counts:
        return cls(**json.loads(text))

    @classmethod
    def from_receipt(cls, receipt: str) -> Counts:
        """Return the counts of a batch that a target already contains.

        A topic loses receipts when its log is cleaned up, long after. The mark remains, so the
        batch is not written again, but then its counts are 0.
        """
        figures = receipt_figures(receipt)
        return cls(
            **{each.name: figures[each.name] for each in fields(cls) if each.name in figures}
        )


def _share(counts: Counts) -> dict[str, int]:
    return {"written": counts.written, "rejected": counts.rejected}


def _of_sink(counts: Counts, number: str) -> Mapping[str, int]:
    return counts.sinks.get(number) or _share(counts)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of a task from one position to another.

    Args:
        id: Increases by one with each batch of the task and never restarts, not even when
            offsets are altered.
        end: The position after the batch; ``read(start, end)`` returns its records.
        state: BEGUN until everything is durable in the target.
        again: Whether it may have run before, so that a sink may already contain it.
        resumed: Whether it is the first batch since the task read its store. If the store was
            restored from a backup, a sink may contain it, or a newer batch, although it never
            ran according to the store.
        routing: A digest of the configuration that determines each record's topic; empty if
            all records go to one topic, None if unknown.
        after: The id of the newest batch that was finished before, 0 if there is none; batches
            with ids in between were dropped. None if unknown.
    """

    task: TaskId
    id: int
    epoch: int
    start: Position
    end: Position
    begun: datetime
    state: BatchState = BatchState.BEGUN
    counts: Counts = Counts()
    finished: datetime | None = None
    again: bool = False
    resumed: bool = False
    routing: str | None = None
    after: int | None = None

    @property
    def range(self) -> str:
        """Return a digest of the positions, which distinguishes batches with the same id."""
        bounds = f"{self.start.to_json()}\n{self.end.to_json()}"
        return hashlib.blake2b(bounds.encode(), digest_size=8).hexdigest()

    @property
    def way_out(self) -> str:
        """Return the ``fix`` text for a batch that can no longer run."""
        name, number = shlex.quote(self.task.connector), self.task.number
        if self.task.run is not None:
            job, run = self.task.run
            return (
                "If the batch can no longer run, give it up while the run is stopped, then "
                f"retry the run: headrace job give-up {shlex.quote(job)} {run}."
            )
        return (
            "If the batch can no longer run, stop the connector and give it up: headrace "
            f"connector offsets give-up {name} --task {number} --batch {self.id}. For headrace "
            "run: headrace offsets give-up FILE."
        )

    def done(self, counts: Counts, now: datetime) -> Batch:
        return replace(self, state=BatchState.FINISHED, counts=counts, finished=now)
