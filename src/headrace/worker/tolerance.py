"""Stops a task when too many of its records are rejected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model import ToleranceLimits, TooManyRejectedError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.model import Counts, TaskId
    from headrace.store import Store


@dataclass(frozen=True, slots=True)
class ToleranceGuard:
    """Judges each batch with those before it, as the store keeps them.

    So the limits hold over batches and restarts, and a batch that runs again is judged
    as it was before: by the time of its intent.
    """

    limits: ToleranceLimits = field(default_factory=ToleranceLimits)

    def check(self, store: Store, task: TaskId, begun: datetime, counts: Counts) -> None:
        """Raise TooManyRejectedError when a batch would exceed a limit.

        Called when the batch's counts are known and nothing of it is visible yet.

        Args:
            store: Where the finished batches are.
            task: The task.
            begun: When the batch was begun.
            counts: What became of its records.
        """
        if not self.limits.given or not counts.rejected:
            return
        window = self.limits.window
        before = store.counts_since(task, begun - window) if window else store.totals(task)
        problem = self.limits.exceeded(before.plus(counts))
        if problem is not None:
            fix = (
                "Mend the data or the definition, or raise the limit. Nothing of this batch "
                "was written, and none of its records dead-lettered."
            )
            raise TooManyRejectedError(problem, fix=fix)

    def keep_since(self, now: datetime) -> datetime | None:
        """Return since when finished batches must be kept; None for as few as you like."""
        window = self.limits.window
        return now - window if window and self.limits.given else None
