"""Files of a folder that give way to those of an offline job's run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sdk import SinkError
from headrace.sdk.errors import StaleEpochError
from headrace_plugins.connectors.file.marks import encoded, read_json
from headrace_plugins.connectors.file.writing import HOUSEKEEPING

if TYPE_CHECKING:
    from headrace.sdk import Boundaries, Mark
    from headrace.sdk.location import Location
    from headrace_plugins.replaced_window import JobRun

_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReplacement:
    """What of a folder gives way to the files of a run.

    Names of files say which window of which job has written them, and in which generation of
    which run. A record in the folder says which that is now, and whether the files of earlier
    ones are gone: the first batch that a run commits takes them away.

    Args:
        task: The number of the task.
        partitions: Whether all gives way that is in the subfolders that the run writes to.
    """

    run: JobRun
    task: int
    window: Boundaries
    partitions: bool

    def file_name(self, mark: Mark, number: int) -> str:
        """Return what a file is called, without its extension."""
        return f"{self._own}{self.task}-{mark.batch:012d}-{number:05d}"

    def begin(self, root: Location, *, has_written: bool) -> bool:
        """Make the run the one whose files the folder has of the window, durably.

        From here on an earlier generation commits nothing. ``has_written`` says whether the
        task has committed to the folder before. Returns whether files of earlier ones are
        still there. Raises StaleEpochError: a later one has begun.
        """
        held = read_json(self._record(root))
        if held is not None and held["run"] == self.run.run:
            if self.run.is_replaced(held["generation"]):
                return not held["cleared"]
        elif held is not None and has_written:
            raise StaleEpochError(
                problem=f"The window is that of {held['run']} by now, which has begun since.",
                fix="Nothing has to be done: the newer run writes the whole window.",
            )
        self._keep(root, cleared=False)
        return True

    def settle(self, root: Location, *, has_written: bool) -> None:
        """Remove what earlier runs have written, unless the run has done so; see ``begin``."""
        if self.begin(root, has_written=has_written):
            for file in self.of_earlier(root):
                file.delete()
            self.clear(root)

    def clear(self, root: Location) -> None:
        """Keep that the files of earlier runs are gone."""
        held = read_json(self._record(root))
        if held is None or not held["cleared"]:
            self._keep(root, cleared=True)

    def of_earlier(self, root: Location) -> list[Location]:
        """Return the files of the window that are not of this generation of this run."""
        return [
            entry.location
            for entry in root.walk()
            if entry.name.startswith(self._of_window)
            and not entry.name.startswith(self._own)
            and not entry.location.is_below(root / HOUSEKEEPING)
        ]

    def in_partitions(self, folders: Collection[Location]) -> list[Location]:
        """Return the files that give way in subfolders that a batch writes to.

        Raises SinkError: one has files of another window of the job, which would be lost.
        """
        found = []
        for folder in folders if self.partitions else ():
            for entry in folder.list() if folder.is_folder() else ():
                if entry.is_folder or entry.name.startswith((self._own, *_HIDDEN)):
                    continue
                if self._of_other_window(entry.name):
                    raise SinkError(
                        problem=f"The partition {folder} has rows of another window of the "
                        "job, which would be lost.",
                        fix="Divide the folder by what the windows are cut by, and into parts "
                        "that are no longer than a window; or set replace.window in place of "
                        "replace.partitions.",
                    )
                found.append(entry.location)
        return found

    def _of_other_window(self, name: str) -> bool:
        is_of_job = re.match(rf"part-{re.escape(encoded(self.run.job))}-[0-9a-f]{{16}}-", name)
        return is_of_job is not None and not name.startswith(self._of_window)

    @property
    def _of_window(self) -> str:
        window = self.window
        key = _digest([window.kind.value, window.lower, window.upper], 8)
        return f"part-{encoded(self.run.job)}-{key}-"

    @property
    def _own(self) -> str:
        return f"{self._of_window}{_digest([self.run.run, self.run.generation], 4)}-"

    def _record(self, root: Location) -> Location:
        name = self._of_window.removeprefix("part-").removesuffix("-")
        return root / HOUSEKEEPING / f"windows/{name}.json"

    def _keep(self, root: Location, *, cleared: bool) -> None:
        record = {"run": self.run.run, "generation": self.run.generation, "cleared": cleared}
        self._record(root).put(json.dumps(record), up_to=root.parent)


def _digest(parts: list[Any], size: int) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=size).hexdigest()
