"""How many records may be rejected before their task stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.model.batch import Counts


@dataclass(frozen=True, slots=True)
class ToleranceLimits:
    """The limits of a connector, each judged for each of its tasks.

    Args:
        count: The most records that may be rejected; None for any number.
        share: The most of what was read that may be rejected, 0 to 1; None for all.
        window: Over which time both are judged, up to the start of the batch that is
            judged; None: since the task first ran.
    """

    count: int | None = None
    share: float | None = None
    window: timedelta | None = None

    @property
    def given(self) -> bool:
        """Return whether there is any limit."""
        return self.count is not None or self.share is not None

    def exceeded(self, counts: Counts) -> str | None:
        """Return what is exceeded, as a sentence, or None.

        Args:
            counts: Of the window, with the batch that is judged.
        """
        since = f" within {self.window.total_seconds():g} s" if self.window else " so far"
        told = f"{counts.rejected} of {counts.read} records were rejected{since}"
        if self.count is not None and counts.rejected > self.count:
            return f"{told}; errors.tolerance.max.count allows {self.count}."
        if self.share is not None and counts.rejected > self.share * counts.read:
            return f"{told}; errors.tolerance.max.share allows {self.share:g} of them."
        return None
