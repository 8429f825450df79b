"""Batches: the bounded steps of a task, and what a retry must have in common with them."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headrace.sdk import StateError
from headrace.sdk.mark import receipt_figures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.model.task import TaskId
    from headrace.sdk import Position

_CHAIN, _SOURCE = "chain", "source"
_BACK = "Restore their previous values until the batch is finished."


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


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Detects whether a retry of an in-doubt batch would have the same records as before.

    Args:
        chain: A digest of the transforms and converters; empty if unknown.
        source: A digest of the value of each key that determines the source's rows, except
            keys with their default value; None if unknown.
    """

    chain: str = ""
    source: Mapping[str, str] | None = None

    @classmethod
    def of_receipt(cls, receipt: str) -> Fingerprint:
        """Return the fingerprint of the attempt that wrote a receipt."""
        figures = receipt_figures(receipt)
        return cls(figures.get(_CHAIN, ""), figures.get(_SOURCE))

    def figures(self) -> dict[str, Any]:
        """Return the fields to store in a receipt."""
        figures = {_CHAIN: self.chain or None, _SOURCE: self.source}
        return {name: value for name, value in figures.items() if value is not None}

    @classmethod
    def of_text(cls, text: str) -> Fingerprint:
        """Parse the result of ``to_text``."""
        chain, _, source = text.partition(" ")
        return cls(chain, json.loads(source) if source else None)

    def to_text(self) -> str:
        """Serialize the fingerprint to one line, for a batch's intent."""
        if self.source is None:
            return self.chain
        return f"{self.chain} {json.dumps(dict(self.source), sort_keys=True)}"

    def has_other_chain(self, before: Fingerprint) -> bool:
        return bool(before.chain and self.chain) and before.chain != self.chain

    def changed_keys(self, before: Fingerprint) -> list[str]:
        """Return the source's keys whose values have changed; none if one side is unknown."""
        if before.source is None or self.source is None:
            return []
        keys = sorted({*before.source, *self.source})
        return [key for key in keys if before.source.get(key) != self.source.get(key)]

    def require_same(self, before: Fingerprint, where: str) -> None:
        """Raise StateError if a batch that is already in ``where`` had other records."""
        if self.has_other_chain(before):
            raise changed_chain(where)
        if keys := self.changed_keys(before):
            raise StateError(
                problem=f"The unfinished batch is already in {where}, and was read with other "
                f"values of the source's {_listed(keys)}.",
                fix=_BACK,
            )

    @classmethod
    def require_same_routing(cls, routing: str, before: str) -> None:
        """Raise StateError if records of a batch may go to other topics than before.

        Guarantee 2: each topic has its own mark. Which rows the mark covers depends on the
        source and the chain that divided them.

        Args:
            routing: The result of ``to_text``; empty if there is only one topic.
            before: The same, from the batch's intent.
        """
        now, then = cls.of_text(routing), cls.of_text(before)
        if now.chain != then.chain:
            raise StateError(
                problem="The transforms or converters, which determine each record's topic, "
                "have changed since the unfinished batch.",
                fix=_BACK,
            )
        if keys := now.changed_keys(then):
            raise StateError(
                problem="The records of the unfinished batch, which go to several topics, were "
                f"read with other values of the source's {_listed(keys)}.",
                fix=_BACK,
            )


NOTHING_KNOWN = Fingerprint()


def changed_chain(where: str, what: str = "transforms or converters") -> StateError:
    """Return the error for an in-doubt batch that was partly written with another chain."""
    problem = f"The unfinished batch is already in {where}, written with other {what}."
    return StateError(problem, fix=_BACK)


def _listed(keys: list[str]) -> str:
    *some, last = keys
    return f"{', '.join(some)} and {last}" if some else last
