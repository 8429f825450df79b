"""The mark of a batch, and the receipts that targets keep with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sdk.errors import StaleEpochError, StateError

_ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class Mark:
    """Names one batch of one task, for ever.

    A sink keeps the newest mark of each application in the transaction that holds
    the data, with the receipt that the runtime gives (Guarantee 2). The receipt names the
    attempt that wrote it, so a sink has to keep nothing but the application, the batch and
    the receipt.

    Args:
        application: Connector and task, unique over all stores and re-creations.
        batch: Grows by one with each batch and never restarts.
        epoch: Grows with each new owner of the task; distinguishes attempts.
        range: A digest of the positions between which the batch's records are. A store that
            was set back may give one number to two ranges.
    """

    application: str
    batch: int
    epoch: int
    range: str = ""

    def receipt(self, figures: Mapping[str, Any]) -> str:
        """Return a receipt: the figures as JSON, and the attempt that writes it."""
        attempt = {"epoch": self.epoch, "range": self.range}
        return json.dumps({**figures, _ATTEMPT: attempt}, sort_keys=True)

    def wrote(self, receipt: str | None) -> bool:
        """Return whether this very attempt wrote the receipt that a target holds of the batch.

        A sink asks on ``commit``: there is nothing to do when it is true, and when it is false,
        as the receipt is None, the batch is to be added. Raises StaleEpochError: another
        attempt wrote it, or another range has the batch's number. What the target holds must
        then not be changed.
        """
        if receipt is None:
            return False
        self.require_range(receipt)
        if _attempt(receipt).get("epoch") == self.epoch:
            return True
        raise StaleEpochError(
            problem=f"Batch {self.batch} of {self.application} was committed by another "
            f"attempt than this one of epoch {self.epoch}.",
            fix="Nothing has to be done where another worker runs the task. Else the store "
            "was set back: see Back up its store in the guide Look after a server.",
        )

    def require_range(self, receipt: str) -> None:
        """Raise StaleEpochError if a receipt that is held of the batch is of another range.

        One that does not say of which range it is, as it is older than its table's log, is
        taken for the batch's own.
        """
        found = _attempt(receipt).get("range", self.range)
        if found != self.range:
            raise self.ahead()

    def ahead(self) -> StaleEpochError:
        """Return the error for a target that holds more than the store knows of."""
        return StaleEpochError(
            problem=f"The target already holds batch {self.batch} of {self.application}, with "
            "other records than those that the batch has now.",
            fix="Another worker runs this task: stop one of them. Or the store was set back: "
            "see Back up its store in the guide Look after a server.",
        )


def receipt_figures(receipt: str) -> dict[str, Any]:
    """Return the figures of a receipt; none if it is empty, as its table has forgotten it."""
    return {name: value for name, value in _parsed(receipt).items() if name != _ATTEMPT}


def require_same_records(held: str, receipt: str, where: str) -> None:
    """Raise StateError if the batch in a target was made of other records than it is now.

    A sink with several targets calls it before its commit, with the receipt that one of them
    holds of an earlier attempt and the one that it was given: the others must not get what
    other transforms have made.
    """
    before, now = receipt_figures(held), receipt_figures(receipt)
    if any(before.get(name) != now.get(name) for name in RECORDS if name in before):
        raise StateError(
            problem=f"The unfinished batch is in {where} already, as other transforms or other "
            "settings of the source made it.",
            fix="Set them back to what they were until the batch is finished.",
        )


RECORDS = ("chain", "source", "read")
"""The figures of a receipt that say what its batch was made of."""


def _attempt(receipt: str) -> dict[str, Any]:
    attempt = _parsed(receipt).get(_ATTEMPT)
    return attempt if isinstance(attempt, dict) else {}


def _parsed(receipt: str) -> dict[str, Any]:
    try:
        parsed = json.loads(receipt or "{}")
    except ValueError:  # not one of the runtime's
        return {}
    return parsed if isinstance(parsed, dict) else {}
