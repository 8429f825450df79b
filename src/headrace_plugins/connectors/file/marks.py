"""What a target of files says of itself: the newest batch of each task, and what it stages."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.sdk import SinkError
from headrace.sdk.errors import StaleEpochError

if TYPE_CHECKING:
    from headrace.sdk import Mark
    from headrace.sdk.location import Location

_NAME_CHARS = 120
_ATTEMPT = re.compile(r"\d+-(\d+)")


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest batch of an application in a target.

    Args:
        application, batch, epoch: As in ``Mark``.
        receipt: What the runtime stores with it.
        moves: Files of the batch: where each was staged and what it is called in the end.
            Some may not have been moved yet.
        removed: Files that give way to them. Some may still be there.
    """

    application: str
    batch: int
    epoch: int
    receipt: str
    moves: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, tree: Any) -> Committed:
        """Read what ``asdict`` gave."""
        moves = tuple((old, new) for old, new in tree["moves"])
        return cls(**{**tree, "moves": moves, "removed": tuple(tree.get("removed", ()))})


def held_receipt(held: Committed | None, mark: Mark) -> str | None:
    """Return the receipt of a batch if it is held; raise StaleEpochError if a newer one is."""
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
            fix="Nothing has to be done: the new owner of the task continues.",
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
    except ValueError as error:
        raise SinkError(
            problem=f"{path} is not what was written there: {error}.",
            fix="Find out who changed that file, and restore it from a backup.",
        ) from error


def discard_attempts(house: Location, mark: Mark) -> None:
    """Remove what this attempt and older ones staged; a newer owner may be at work."""
    for attempt in staging_folder(house, mark).parent.list():
        found = _ATTEMPT.fullmatch(attempt.name)
        if found is not None and int(found[1]) <= mark.epoch:
            attempt.location.delete_folder()


def checked_below(named: str, folder: Location, state: Location) -> Location:
    """Return the place that a target's state names; it has to be in a folder."""
    place = folder / named
    if not place.is_below(folder):
        raise SinkError(
            problem=f"{state} names {named}, which is not in {folder}.",
            fix="Find out who changed that file, and restore it from a backup.",
        )
    return place
