"""The files that a task has found, as its ledger has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import StateError
from headrace_plugins.connectors.file.groups import NumberedFile
from headrace_plugins.connectors.file.listing import FoundFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.sdk import Ledger

__all__ = ["FileLedger"]

_OF, _WITHDRAWN = "of", "withdrawn"


class FileLedger:
    """The entries of a ledger that are files of one configured path.

    Entries of other paths keep their numbers: a position counts all entries, and whoever
    configures a former path again goes on where that one stood. A file that has changed since
    it was found, or is gone, is withdrawn by an entry of its own, and may be found anew.

    Args:
        ledger: The ledger.
        path: The path, as configured.
        read: How many entries are read of each path: a file that was read under another one
            is not read again.
    """

    def __init__(self, ledger: Ledger, path: str, read: Mapping[str, int]) -> None:
        self._ledger = ledger
        self._path = path
        self._read = read
        self._load()

    def __len__(self) -> int:
        """Return how many entries there are, those of other paths included."""
        return len(self._entries)

    @property
    def known(self) -> frozenset[str] | set[str]:
        """Return the paths of the files that need not be found any more."""
        return self._known

    def files(self, start: int, end: int | None = None) -> Iterator[NumberedFile]:
        """Yield the files among the entries in ``[start, end)``."""
        stop = len(self._entries) if end is None else min(end, len(self._entries))
        for number in range(start, stop):
            file = self._entries[number]
            if file is not None:
                yield NumberedFile(number, file)

    def add(self, found: Iterable[FoundFile]) -> bool:
        """Add files; False when the ledger is not as it was known, and was loaded anew."""
        return self._append([{**file.to_item(), _OF: self._path} for file in found])

    def withdraw(self, files: Iterable[NumberedFile]) -> bool:
        """Take files back that no batch holds; False as for ``add``."""
        return self._append(
            [{"path": file.path, _WITHDRAWN: file.number, _OF: self._path} for file in files]
        )

    def _append(self, items: Sequence[Mapping[str, str | int]]) -> bool:
        if not items:
            return True
        try:
            self._ledger.append(items, after=len(self._entries))
        except StateError:
            # The answer to an earlier append was lost, and what it added is there.
            self._load()
            return False
        for item in items:
            self._take(item)
        return True

    def _load(self) -> None:
        self._entries: list[FoundFile | None] = []
        self._known: set[str] = set()
        for item in self._ledger.slice(0, len(self._ledger)):
            self._take(item)

    def _take(self, item: Mapping[str, str | int]) -> None:
        of, path, number = item.get(_OF, self._path), str(item["path"]), len(self._entries)
        withdrawn = item.get(_WITHDRAWN)
        if withdrawn is not None:
            self._entries.append(None)
            if of == self._path:
                self._entries[int(withdrawn)] = None
                self._known.discard(path)
            return
        self._entries.append(FoundFile.from_item(item) if of == self._path else None)
        if of == self._path or number < self._read.get(str(of), 0):
            self._known.add(path)
