"""The rejected records of one batch, from the sink's transaction to the dead letters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from headrace.dataplane.deadletters import LetterMarks, Letters
from headrace.model import Counts
from headrace.sdk import SourceError, receipt_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dataplane.deadletters import DeadLetters, RejectedFrame
    from headrace.model import Batch
    from headrace.sdk import Mark

_LETTERS = "letters"


@dataclass(frozen=True)
class Rejects:
    """What one sink rejects of a batch.

    Args:
        letters: What becomes of it; None where nothing is tolerated.
        mark: The batch's in the sink.
        writer: Who writes, as marks name it, without the sink's name.
        number: Which of the task's sinks it is, from 0. What the chain rejects it rejects for
            all of them, and the first sink's transaction takes its letters.
        judge: Raises when a batch rejects more records than are tolerated.
    """

    letters: DeadLetters | None
    mark: Mark
    writer: str
    number: int = 0
    judge: Callable[[Batch, Counts], None] | None = None

    def settled(self, receipt: str) -> Counts:
        """Return the counts of a batch that the sink holds.

        Letters are appended that a crash kept from their topic.
        """
        counts = Counts.from_receipt(receipt)
        self.append(Letters.from_json(receipt_figures(receipt).get(_LETTERS, {})))
        return counts

    def stage(
        self, counts: Counts, rejected: Callable[[], RejectedFrame], batch: Batch
    ) -> Letters:
        """Stage the letters of a batch, if it rejects any."""
        if self.judge is not None:
            self.judge(batch, counts)
        if not counts.rejected:
            return Letters()
        assert self.letters is not None
        found = rejected()
        count = counts.rejected
        letters = self.letters.stage(found, self._marks, batch, sink=self.number, count=count)
        again = sum(letters.causes.values())
        if again != count and not letters.settled:
            problem = f"{count} records were rejected, but {again} were found again."
            raise SourceError(problem, fix="The source gives other rows when it is read again.")
        return letters

    def receipt(self, counts: Counts, letters: Letters) -> str:
        """Return what the sink keeps beside the batch's mark."""
        staged = letters.to_json()
        return self.mark.receipt(asdict(counts) | ({_LETTERS: staged} if staged else {}))

    def append(self, letters: Letters) -> None:
        """Append the letters, now that the sink's transaction has decided for them."""
        if self.letters is not None:
            self.letters.append(letters, self._marks)

    def discard(self) -> None:
        """Remove what was staged, as the sink's transaction does not come about."""
        if self.letters is not None:
            self.letters.discard(self._marks, sink=self.number)

    @property
    def _marks(self) -> LetterMarks:
        return LetterMarks(
            chain=replace(self.mark, application=f"{self.writer}/dlq"),
            sink=replace(self.mark, application=f"{self.mark.application}/refused"),
        )
