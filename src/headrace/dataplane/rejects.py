"""The rejected records of one batch, from the sink's transaction to the dead letters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.dataplane.deadletters import LetterMarks, Letters, Whose
from headrace.model import Counts
from headrace.sdk import SourceError, StateError
from headrace.sdk.mark import receipt_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dataplane.deadletters import DeadLetters, RejectedFrame
    from headrace.model import Batch
    from headrace.sdk import Mark

_LETTERS, _TOPIC, _CHAIN = "letters", "topic", "chain"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True)
class Rejects:
    """What one sink rejects of a batch.

    Args:
        letters: What becomes of it; None where nothing is tolerated.
        mark: The batch's in the sink.
        writer: Who writes, as marks name it, without the sink's name.
        whose: Which of the task's sinks it is, and whose letters come with it.
        chain: Names the chain of transforms and converters, as a digest.
        judge: Raises when a batch rejects more records than are tolerated.
    """

    letters: DeadLetters | None
    mark: Mark
    writer: str
    whose: Whose = field(default_factory=Whose)
    chain: str = ""
    judge: Callable[[Batch, Counts], None] | None = None

    def settled(self, receipt: str) -> Counts:
        """Return the counts of a batch that the sink holds.

        Letters are appended that a crash kept from their topic.
        """
        told = dict(receipt_figures(receipt).get(_LETTERS, {}))
        topic = told.pop(_TOPIC, None)
        if topic is not None and topic != self._topic:
            problem = f"Dead letters of the unfinished batch belong into {topic}."
            fix = (
                f"Set errors.tolerance to all and {DEAD_LETTER_TOPIC} to {topic} until the "
                "batch is finished."
            )
            raise StateError(problem, fix=fix)
        self.append(Letters.from_json(told))
        return Counts.from_receipt(receipt)

    def is_of_other_chain(self, receipt: str) -> bool:
        """Return whether a receipt of the batch says that another chain made its records."""
        chain = receipt_figures(receipt).get(_CHAIN, "")
        return bool(chain and self.chain) and chain != self.chain

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
        letters = self.letters.stage(found, self._marks, batch, self.whose, count)
        again = sum(letters.causes.values())
        if again != count and not letters.sink.settled:
            problem = f"{count} records were rejected, but {again} were found again."
            raise SourceError(problem, fix="The source gives other rows when it is read again.")
        return letters

    def receipt(self, counts: Counts, letters: Letters) -> str:
        """Return what the sink keeps beside the batch's mark."""
        told = asdict(counts)
        if self.chain:
            told[_CHAIN] = self.chain
        if staged := letters.to_json():
            told[_LETTERS] = {**staged, _TOPIC: self._topic}
        return self.mark.receipt(told)

    def append(self, letters: Letters) -> None:
        """Append the letters, now that the sink's transaction has decided for them."""
        if self.letters is not None:
            self.letters.append(letters, self._marks)

    def discard(self) -> None:
        """Remove what was staged, as the sink's transaction does not come about."""
        if self.letters is not None:
            self.letters.discard(self._marks, self.whose)

    @property
    def _topic(self) -> str | None:
        topic = None if self.letters is None else self.letters.topic
        return None if topic is None else topic.name

    @property
    def _marks(self) -> LetterMarks:
        return LetterMarks(
            chain=replace(self.mark, application=f"{self.writer}/dlq"),
            sink=replace(self.mark, application=f"{self.mark.application}/refused"),
        )
