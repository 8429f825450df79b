"""The commit marks of file targets: the newest batch of each task, and staging folders."""

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
        receipt: What the runtime stores with the batch.
        moves: The staged path and the final path of each file of the batch. Some files may
            not have been moved yet.
        removed: The files that the batch replaces. Some may not have been deleted yet.
    """

    application: str
    batch: int
    epoch: int
    receipt: str
    moves: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, tree: Any) -> Committed:
        """Parse the result of ``asdict``."""
        moves = tuple((old, new) for old, new in tree["moves"])
        return cls(**{**tree, "moves": moves, "removed": tuple(tree.get("removed", ()))})


def held_receipt(held: Committed | None, mark: Mark) -> str | None:
    """Return the receipt of a committed batch; raise StaleEpochError if a newer one exists."""
    if held is None or held.batch < mark.batch:
        return None
    if held.batch > mark.batch:
        raise mark.newer(held.batch)
    return held.receipt


def check_epoch(held: Committed | None, mark: Mark) -> None:
    """Raise StaleEpochError if a newer owner of the task has already committed a batch."""
    if held is not None and held.epoch > mark.epoch:
        raise StaleEpochError(
            problem=f"Batch {mark.batch} of {mark.application} has epoch {mark.epoch}, but "
            f"the target already has batch {held.batch} of epoch {held.epoch}.",
            fix="No action is needed: the new owner of the task continues.",
        )


def encoded(application: str) -> str:
    """Return a unique file name for an application, which may contain slashes."""
    name = quote(application, safe="").replace(".", "%2E")
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.blake2b(application.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_CHARS]}~{digest}"


def staging_folder(house: Location, mark: Mark) -> Location:
    """Return the staging folder of an attempt; no other attempt writes to it."""
    return house / f"staging/{encoded(mark.application)}/{mark.batch:012d}-{mark.epoch}"


def read_json(path: Location) -> Any:
    """Return the parsed JSON file; None if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SinkError(
            problem=f"{path} is not valid JSON: {error}.",
            fix="Find out who changed that file, and restore it from a backup.",
        ) from error


def discard_attempts(house: Location, mark: Mark) -> None:
    """Delete the staging folders of this attempt and older ones; a newer one may be active."""
    for attempt in staging_folder(house, mark).parent.list():
        found = _ATTEMPT.fullmatch(attempt.name)
        if found is not None and int(found[1]) <= mark.epoch:
            attempt.location.delete_folder()


def checked_below(named: str, folder: Location, state: Location) -> Location:
    """Return the location of a path in a state file. Raises SinkError if outside ``folder``."""
    place = folder / named
    if not place.is_below(folder):
        raise SinkError(
            problem=f"{state} names {named}, which is not in {folder}.",
            fix="Find out who changed that file, and restore it from a backup.",
        )
    return place
