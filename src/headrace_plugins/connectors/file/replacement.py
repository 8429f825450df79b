"""Selects the files of a folder that an offline job's run replaces."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.sdk import SinkError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import sync
from headrace_plugins.connectors.file.listing import HIDDEN
from headrace_plugins.connectors.file.output import HOUSEKEEPING, encoded, read_json

if TYPE_CHECKING:
    from headrace.sdk import Boundaries, Mark
    from headrace.sdk.location import Location
    from headrace_plugins.window import JobRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReplacement:
    """Selects the files of a folder that a run replaces.

    The name of a file contains the job, the window, the run and its generation. For each
    window, a JSON file in the folder stores the current run and generation, and whether the
    files of earlier ones are deleted: the first batch that a run commits deletes them.

    Args:
        names: The names of the files of this run and of others.
        partitions: Whether the run also replaces all other files in the subfolders that it
            writes to.
    """

    names: WindowNames
    partitions: bool

    @property
    def run(self) -> JobRun:
        """The run that writes to the folder."""
        return self.names.run

    def file_name(self, mark: Mark, number: int) -> str:
        """Return the name of a file, without its extension."""
        task = _digest([mark.application], 6)
        return f"{self.names.own}{task}-{mark.batch:012d}-{number:05d}"

    def require_current(self, root: Location) -> None:
        """Raise StaleEpochError if a later run of the window, or generation, has started."""
        held = self._held(root)
        if held is None:
            return
        if held.run == self.run.run:
            self.run.require_newest(held.generation)
        elif held.before.get(self.run.run, 0) >= self.run.generation:
            raise StaleEpochError(
                problem=f"The newer run {held.run} has taken over the window.",
                fix="No action is needed: the newer run writes the whole window.",
            )

    def giving_way(self, root: Location, folders: Iterable[Location]) -> list[Location]:
        """Return the files that a batch replaces, and stop earlier runs from committing.

        Args:
            root: The folder.
            folders: The folders that the batch writes to.

        Raises StaleEpochError if a later run has started, and SinkError if files would be lost
        or cannot be replaced.
        """
        found = self._in_partitions(root, {each for each in folders if each != root})
        return found + self._earlier(root)

    def clear(self, root: Location) -> None:
        """Store that the files of earlier runs are deleted."""
        held = self._held(root)
        if held is None or not held.cleared:
            self._keep(root, held, cleared=True)

    def settle(self, root: Location) -> None:
        """Delete the files of earlier runs, if no batch of this run has done so."""
        remove(self._earlier(root), root)
        self.clear(root)

    def _earlier(self, root: Location) -> list[Location]:
        """Return the remaining files of earlier runs, which can no longer commit after this."""
        self.require_current(root)
        held, names = self._held(root), self.names
        if held is None or (held.run, held.generation) != (self.run.run, self.run.generation):
            self._keep(root, held, cleared=False)
            for entry in (root / f"{HOUSEKEEPING}/staging").list():
                if names.is_of_earlier_generation(f"part-{entry.name}"):
                    entry.location.delete_folder()
        elif held.cleared:
            return []
        found = (
            e.location for e in root.walk() if not e.is_folder and names.is_earlier(e.name)
        )
        return [file for file in found if not _is_of_other_target(file, root)]

    def _in_partitions(self, root: Location, folders: Collection[Location]) -> list[Location]:
        """Return the files to replace in the subfolders that a batch writes to."""
        names, found = self.names, []
        place = root.resolved()
        for folder in folders:
            if folder.resolved() != place / folder.relative_to(root):
                raise SinkError(
                    problem=f"The partition {folder} is a symbolic link, or in one: the files "
                    "to replace cannot be found there.",
                    fix="Replace the link with the folder itself, or remove the link.",
                    field="partition.by",
                )
            for entry in folder.list() if self.partitions else ():
                if names.is_of_other_window(entry.name):
                    raise SinkError(
                        problem=f"The partition {folder} has rows of another window of the "
                        "job, which would be lost.",
                        fix="Partition by the field that the windows are based on, with "
                        "partitions no longer than a window, or use replace.window instead of "
                        "replace.partitions. If a former job of the same name wrote those "
                        "files, with other windows, remove them.",
                        field="replace.partitions",
                    )
                is_passed_over = entry.is_folder or entry.name.startswith(HIDDEN)
                if not is_passed_over and not names.is_own(entry.name):
                    found.append(entry.location)
        return found

    def _record(self, root: Location) -> Location:
        name = self.names.window.removeprefix("part-").rstrip("@")
        return root / HOUSEKEEPING / f"windows/{name}.json"

    def _held(self, root: Location) -> _Writer | None:
        record = self._record(root)
        tree = read_json(record)
        try:
            return None if tree is None else _Writer(**tree)
        except TypeError as error:
            raise SinkError(
                problem=f"{record} does not contain the run that wrote the window.",
                fix="Find out who changed that file, and restore it from a backup.",
            ) from error

    def _keep(self, root: Location, held: _Writer | None, *, cleared: bool) -> None:
        run, before = self.run.run, {} if held is None else dict(held.before)
        if held is not None and held.run != run:
            before[held.run] = held.generation
        before.pop(run, None)
        writer = _Writer(run, self.run.generation, cleared, before)
        self._record(root).put(json.dumps(asdict(writer)), up_to=root.parent)


def remove(files: Iterable[Location], root: Location) -> None:
    """Delete files of a folder, durably; skip files that do not exist."""
    folders = set()
    for file in files:
        file.delete()
        folders.add(file.parent)
    sync((folder for folder in folders if folder.is_folder()), up_to=root)


@dataclass(frozen=True, slots=True)
class _Writer:
    """The current run of a window.

    Args:
        run, generation: The run that started last, and its generation.
        cleared: Whether the files of earlier runs and generations are deleted.
        before: The earlier runs of the window, with their last generations.
    """

    run: str
    generation: int
    cleared: bool
    before: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowNames:
    """The names of the files that a job writes.

    The parts of a name are separated by ``@``, which is encoded in the names of jobs.

    Args:
        job: The prefix of all files of the job; ``window`` is the prefix of the window's files,
            and ``own`` that of the files of this generation of the run.
        plain: Matches the files of the job's runs that replaced nothing, with the number of
            the run and its generation.
    """

    run: JobRun
    job: str
    window: str
    own: str
    plain: re.Pattern[str]

    @classmethod
    def of(cls, run: JobRun, window: Boundaries) -> WindowNames:
        """Return the names for a run and its window."""
        job = f"part-{encoded(run.job)}@"
        bounds = [window.kind.value, window.lower, window.upper]
        of_window = f"{job}{_digest(bounds, 8)}@"
        own = f"{of_window}{_digest([run.run, run.generation], 8)}-"
        plain = re.compile(rf"part-{re.escape(quote(f'{run.job}@', safe=''))}(\d+)%2E(\d+)-")
        return cls(run, job, of_window, own, plain)

    def is_own(self, name: str) -> bool:
        """Return whether this generation of the run wrote the file."""
        return name.startswith(self.own) or self._plain(name) == (
            self.run.number,
            self.run.generation,
        )

    def is_earlier(self, name: str) -> bool:
        """Return whether an earlier generation, or an earlier run of the window, wrote it."""
        is_of_window = name.startswith(self.window) and not name.startswith(self.own)
        return is_of_window or self.is_of_earlier_generation(name)

    def is_of_earlier_generation(self, name: str) -> bool:
        """Return whether an earlier generation of the run, which replaced nothing, wrote it."""
        plain = self._plain(name)
        if plain is None:
            return False
        return plain[0] == self.run.number and plain[1] < self.run.generation

    def is_of_other_window(self, name: str) -> bool:
        """Return whether a run of another window of the job wrote the file."""
        plain = self._plain(name)
        is_of_job = name.startswith(self.job) and not name.startswith(self.window)
        return is_of_job or (plain is not None and plain[0] != self.run.number)

    def _plain(self, name: str) -> tuple[int, int] | None:
        found = self.plain.match(name)
        return None if found is None else (int(found[1]), int(found[2]))


def _is_of_other_target(file: Location, root: Location) -> bool:
    """Return whether a file is in ``_headrace``, or in a subfolder that is its own target."""
    folder = file.parent
    while folder != root:
        if folder.name == HOUSEKEEPING or (folder / HOUSEKEEPING).is_folder():
            return True
        folder = folder.parent
    return False


def _digest(parts: list[Any], size: int) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=size).hexdigest()
