"""Counts what becomes of the records of one write, as cheaply as its balance allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.model import Counts
from headrace.sdk import Counting
from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import Shape

_FILTER = "filter:"


@dataclass(frozen=True)
class Tally:
    """The count of one write.

    Args:
        known: How many records the source says there are; None when it does not know.
        counting: Where the sink's count comes from.
        seen: Spark's own count on the way, where those two are not enough.
        expected: How many records the sink gets, where that is known before.
    """

    known: int | None
    counting: Counting
    seen: Observation | None
    expected: int | None = None

    @classmethod
    def of(
        cls, shape: Shape, *, known: int | None, counting: Counting, tolerant: bool
    ) -> Tally:
        """Choose how to count.

        Without dead letters a rejected record fails the job, so only a filter or a
        tolerated error can make a difference between what is read and what is written.
        """
        parts = shape.dropped is not None or (shape.error is not None and tolerant)
        enough = known is not None or counting is Counting.MEASURED
        seen = None if enough and not parts else Observation()
        return cls(known, counting, seen, expected=None if parts else known)

    def over(self, frame: DataFrame, shape: Shape, aliases: Sequence[str]) -> DataFrame:
        """Count the records of ``frame`` by what the shape's expressions say of each."""
        if self.seen is None:
            return frame
        measures = _measures(shape, aliases)
        return frame.observe(self.seen, *(F.expr(measure) for measure in measures))

    @classmethod
    def counted(cls, frame: DataFrame, shape: Shape, aliases: Sequence[str]) -> Counts:
        """Count records by a job of its own; the good ones are not written yet."""
        row = frame.selectExpr(*_measures(shape, aliases)).collect()[0]
        return _counts(dict(row.asDict()))

    def counts(
        self,
        written: int,
        frame: DataFrame,
        shape: Shape,
        aliases: Sequence[str],
        *,
        refused: int = 0,
    ) -> Counts:
        """Return the counts after the job, given what the sink says it wrote and refused.

        The other arguments are those that ``over`` got.
        """
        found = _counts(self._found(frame, shape, aliases))
        read, rejected = found.read, found.rejected + refused
        if self.seen is None:
            read = written + refused if self.known is None else self.known
        if self.counting is Counting.UNKNOWN:
            written = read - found.filtered - rejected
        return replace(found, read=read, written=written, rejected=rejected)

    def _found(
        self, frame: DataFrame, shape: Shape, aliases: Sequence[str]
    ) -> Mapping[str, int]:
        if self.seen is None:
            return {}
        try:
            return self.seen.get
        except Py4JError:
            # Where Spark can prove that no record is good it runs nothing that counts.
            row = frame.selectExpr(*_measures(shape, aliases)).collect()[0]
            return dict(row.asDict())


def _counts(found: Mapping[str, int]) -> Counts:
    """Return what was counted, as far as it was; nothing is written yet."""
    filters = {
        name.removeprefix(_FILTER): int(rows)
        for name, rows in found.items()
        if name.startswith(_FILTER) and rows
    }
    return Counts(
        read=int(found.get("read", 0)),
        filtered=sum(filters.values()),
        rejected=int(found.get("rejected", 0)),
        filters=filters,
    )


def _measures(shape: Shape, aliases: Sequence[str]) -> list[str]:
    measures = ["count(1) AS read"]
    if shape.dropped is not None:
        measures += [
            f"count_if({shape.dropped} = {literal(alias)}) AS {quote(_FILTER + alias)}"
            for alias in aliases
        ]
    if shape.error is not None:
        measures.append(f"count_if({shape.error} IS NOT NULL) AS rejected")
    return measures
