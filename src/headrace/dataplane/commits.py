"""Commits many streams in parallel, for sinks whose commits run in workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.dataplane.delivery import StagedPart
from headrace.dataplane.streams import Delivery
from headrace.sdk.sink import WorkerCommit, run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class CommitsTogether:
    """Collects staged parts and commits them in one job.

    Waiting is safe: the parts are staged and checked, and if a crash leaves only some of them
    committed, the next attempt commits the rest.

    Args:
        spark: Runs the job.
        commit: Commits the parts of one stream immediately.
        accept: Called with each committed part.
    """

    spark: SparkSession
    commit: Callable[[Sequence[StagedPart]], None]
    accept: Callable[[StagedPart], None]
    _waiting: list[StagedPart] = field(default_factory=list, init=False)
    _targets: set[str] = field(default_factory=set, init=False)
    _place: tuple[int, ...] = field(default=(), init=False)

    def commit_of(
        self, delivery: Delivery, place: tuple[int, ...]
    ) -> Callable[[Sequence[StagedPart]], None]:
        """Return the commit function of a stream; first commits the streams of other places."""
        if not delivery.is_few or place != self._place:
            self.finish()
        self._place = place
        return self._add if delivery.is_few else self.commit

    def _add(self, staged: Sequence[StagedPart]) -> None:
        """Queue the parts of a stream, or commit them now if they cannot wait."""
        writes = [part.rows.write for part in staged]
        shared = [write for write in writes if isinstance(write, WorkerCommit)]
        targets = {write.target for write in shared}
        if len(targets) < len(staged) or targets & self._targets:
            self.finish()
        if len(targets) < len(staged):
            self.commit(staged)
        else:
            self._waiting += staged
            self._targets |= targets

    def finish(self) -> None:
        """Commit the waiting parts."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._targets.clear()
        works = [part.work() for part in waiting]
        run_in_workers(self.spark, [work for work in works if work is not None])
        for part in waiting:
            part.finish()
            self.accept(part)

    def abort(self) -> None:
        """Abort the waiting parts."""
        for part in self._waiting:
            part.abort()
        self._waiting.clear()
