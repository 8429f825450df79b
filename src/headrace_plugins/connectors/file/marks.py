"""The marks of a folder: which batch of each application it holds, and what completes it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.sdk import StaleEpochError

if TYPE_CHECKING:
    from headrace.sdk import Mark
    from headrace.sdk.location import Location

__all__ = [
    "HOUSEKEEPING",
    "Committed",
    "check_epoch",
    "discard_attempts",
    "encoded",
    "held_receipt",
    "read_json",
    "staging_folder",
]

HOUSEKEEPING = "_headrace"
"""A subfolder that readers pass over, as its name begins with an underscore."""
_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest batch of an application in a target.

    Args:
        application, batch, epoch: As in ``Mark``.
        receipt: What the runtime gave to keep with it.
        moves: Files of the batch: where each was staged and what it is called in the end.
            Some may not have been moved yet.
    """

    application: str
    batch: int
    epoch: int
    receipt: str
    moves: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, mark: Mark, receipt: str, moves: tuple[tuple[str, str], ...] = ()) -> Committed:
        """Return the batch of a mark."""
        return cls(mark.application, mark.batch, mark.epoch, receipt, moves)

    @classmethod
    def from_json(cls, tree: Any) -> Committed:
        """Read what ``to_json`` gave."""
        return cls(**{**tree, "moves": tuple((old, new) for old, new in tree["moves"])})

    def to_json(self) -> dict[str, Any]:
        """Return the form kept in a file."""
        return asdict(self)


def held_receipt(held: Committed | None, mark: Mark) -> str | None:
    """Return the receipt of a batch if it is held.

    Raises:
        StaleEpochError: A newer batch of the application is.
    """
    if held is None or held.batch < mark.batch:
        return None
    if held.batch > mark.batch:
        raise StaleEpochError(
            problem=f"The target already holds batch {held.batch} of {mark.application}, "
            f"and was asked for batch {mark.batch}.",
            fix="Another worker runs this task, or the state folder was set back; restore it.",
        )
    return held.receipt


def check_epoch(held: Committed | None, mark: Mark) -> None:
    """Refuse a batch whose task has passed to a newer owner, who has written already."""
    if held is not None and held.epoch > mark.epoch:
        raise StaleEpochError(
            problem=f"Batch {mark.batch} of {mark.application} is of epoch {mark.epoch}, and "
            f"the target holds batch {held.batch} of epoch {held.epoch}.",
            fix="Nothing has to be done: the new owner of the task goes on.",
        )


def encoded(application: str) -> str:
    """Return a file name for an application, which may hold slashes; different for each."""
    name = quote(application, safe="").replace(".", "%2E")
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.blake2b(application.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_CHARS]}~{digest}"


def staging_folder(house: Location, mark: Mark) -> Location:
    """Return where an attempt stages; no other attempt writes there."""
    return house / f"staging/{encoded(mark.application)}/{mark.batch:012d}-{mark.epoch}"


def read_json(path: Location) -> Any:
    """Return what the file holds, None if there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def discard_attempts(house: Location, mark: Mark) -> None:
    """Remove what this attempt and older ones staged; a newer owner may be at work."""
    for attempt in staging_folder(house, mark).parent.list():
        if int(attempt.name.rpartition("-")[2]) <= mark.epoch:
            attempt.location.delete_folder()
