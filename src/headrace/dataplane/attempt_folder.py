"""The folder of one attempt at a batch, for files that are needed only while it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk.folders import folder_name

if TYPE_CHECKING:
    from headrace.sdk import Mark
    from headrace.sdk.location import Location

_ATTEMPT = re.compile(r"(\d+)-(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of an attempt, which is its own even if an older owner still writes.

    As a context manager it deletes what is left of crashed attempts, and itself at the end.

    Args:
        staging: The folder of all attempts, on a file system that all executors reach.
        mark: The mark of the batch's part.
    """

    staging: Location
    mark: Mark

    def __enter__(self) -> Location:
        """Return the folder, which does not exist; those of newer epochs stay."""
        for entry in self._all.list():
            found = _ATTEMPT.fullmatch(entry.name)
            if found is None:
                continue
            if (int(found[1]), int(found[2])) <= (self.mark.batch, self.mark.epoch):
                entry.location.delete_folder()
        return self._location

    def __exit__(self, *_: object) -> None:
        """Delete the folder."""
        self._location.delete_folder()

    @property
    def _location(self) -> Location:
        return self._all / f"{self.mark.batch:012d}-{self.mark.epoch}"

    @property
    def _all(self) -> Location:
        return self.staging / folder_name(self.mark.application)
