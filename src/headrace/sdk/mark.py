"""The mark of a batch, and the receipts that targets store with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sdk.errors import StaleEpochError, StateError

_ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class Mark:
    """The permanent identifier of one batch of one task.

    A sink stores the newest mark of each application in the same transaction as the data, with
    the receipt from the runtime (Guarantee 2). The receipt identifies the attempt that wrote
    it, so a sink needs to store only the application, the batch and the receipt.

    Args:
        application: Connector and task; unique across all stores and re-created connectors.
        batch: The batch number; it grows by one with each batch and never restarts.
        epoch: Grows with each new owner of the task; distinguishes attempts.
        range: A digest of the start and end positions of the batch. After the store was set
            back to an earlier state, the same batch number may be used for two ranges.
    """

    application: str
    batch: int
    epoch: int
    range: str = ""

    def receipt(self, figures: Mapping[str, Any]) -> str:
        """Return a receipt: JSON with the figures and the attempt that writes it."""
        attempt = {"epoch": self.epoch, "range": self.range}
        return json.dumps({**figures, _ATTEMPT: attempt}, sort_keys=True)

    def wrote(self, receipt: str | None) -> bool:
        """Return whether this same attempt wrote the batch's receipt in the target.

        A sink calls it in ``commit``. If true, there is nothing to do; if false (the receipt is
        None), the sink adds the batch. Raises StaleEpochError: another attempt wrote the
        receipt, or the batch number belongs to another range. The target must then not be
        changed.
        """
        if receipt is None:
            return False
        self.require_range(receipt)
        if _attempt(receipt).get("epoch") == self.epoch:
            return True
        raise StaleEpochError(
            problem=f"Batch {self.batch} of {self.application} was committed by another "
            f"attempt, not by this one with epoch {self.epoch}.",
            fix="If another worker runs the task, do nothing. Otherwise the store was set back "
            "to an earlier state: see Back up its store in the guide Look after a server.",
        )

    def require_range(self, receipt: str) -> None:
        """Raise StaleEpochError if the batch's receipt in the target is for another range.

        A receipt without a range is accepted: the table's log no longer has the full receipt.
        """
        found = _attempt(receipt).get("range", self.range)
        if found != self.range:
            raise self.ahead()

    def ahead(self) -> StaleEpochError:
        """Return the error for a target that has this batch of another range."""
        return self._conflict(f"batch {self.batch} of {self.application}, of other records")

    def newer(self, held: int) -> StaleEpochError:
        """Return the error for a target that has a newer batch of the application."""
        return self._conflict(
            f"batch {held} of {self.application}, which is newer than batch {self.batch}"
        )

    def _conflict(self, held: str) -> StaleEpochError:
        return StaleEpochError(
            problem=f"The target already has {held}.",
            fix="If another worker runs this task, stop one of them. Otherwise the store was "
            "set back to an earlier state: see Back up its store in the guide Look after a "
            "server.",
        )


def receipt_figures(receipt: str) -> dict[str, Any]:
    """Return the figures of a receipt; none if it is empty because its table dropped it."""
    return {name: value for name, value in _parsed(receipt).items() if name != _ATTEMPT}


def require_same_records(held: str, receipt: str, where: str) -> None:
    """Raise StateError if the batch in a target was built from different records.

    A sink with several targets calls it before its commit, with the receipt of an earlier
    attempt from one target and the current receipt: the other targets must not receive the
    output of different transforms, or a record that the first one did not get, or the reverse.
    """
    before, now = receipt_figures(held), receipt_figures(receipt)
    if "rejected" in before and before["rejected"] != now.get("rejected"):
        raise StateError(
            problem=f"The unfinished batch is already in {where}, with "
            f"{before['rejected']} rejected records instead of {now.get('rejected')}: another "
            "target accepts other records than at the first attempt.",
            fix="Restore the constraints and types of the other targets until the batch is "
            "finished.",
        )
    if any(before.get(name) != now.get(name) for name in RECORDS if name in before):
        raise StateError(
            problem=f"The unfinished batch is already in {where}, with other transforms or "
            "other settings of the source.",
            fix="Restore the previous transforms and settings until the batch is finished.",
        )


RECORDS = ("chain", "source", "read")
"""The receipt figures that identify the transforms and source settings of its batch."""


def receipt_of_all(receipts: Sequence[str | None]) -> str | None:
    """Return the receipt of a batch with several targets; None if one of them lacks it.

    Each attempt stages its dead letters again, so only the receipt of the last commit names
    those that are still there: of the newest attempt, and of that its last target.

    Args:
        receipts: The receipts of the targets, in the order of their commits.
    """
    found = [receipt for receipt in receipts if receipt is not None]
    if not found or len(found) < len(receipts):
        return None
    return max(reversed(found), key=lambda receipt: int(_attempt(receipt).get("epoch", -1)))


def _attempt(receipt: str) -> dict[str, Any]:
    attempt = _parsed(receipt).get(_ATTEMPT)
    return attempt if isinstance(attempt, dict) else {}


def _parsed(receipt: str) -> dict[str, Any]:
    try:
        parsed = json.loads(receipt or "{}")
    except ValueError:  # not written by the runtime
        return {}
    return parsed if isinstance(parsed, dict) else {}
