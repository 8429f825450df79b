"""The files that are followed, whatever a rotation calls them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace_plugins.connectors.file.formats import is_compressed
from headrace_plugins.connectors.file.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace_plugins.connectors.file.listing import Listing, Share
    from headrace_plugins.connectors.file.tail import Block

__all__ = ["Followed"]

_LISTING_SECONDS = 1.0


class Followed:
    """Reads what is added to the files of a listing, from each in turn.

    A pattern such as ``app.log*`` also finds the names that a rotation gives to files. A file
    is therefore known by its inode: under a new name it goes on where it stood.

    Args:
        listing: What to follow.
        share: Which of the files.
        offsets: Where each file stood, by its path then; see ``Tail``.
        clock: Gives seconds that only grow.
    """

    def __init__(
        self,
        listing: Listing,
        share: Share,
        offsets: Mapping[str, Mapping[str, Any]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listing = listing
        self._share = share
        self._clock = clock
        self._tails: dict[str, Tail] = {}
        self._turn = 0
        self._listed: float | None = None
        self._rests: list[tuple[str, Block]] = []
        self.offsets: dict[str, Mapping[str, Any]] = dict(offsets)
        """Where each file stands, by its path now."""

    def read(self, size_bytes: int, max_lines: int | None) -> tuple[str, Block] | None:
        """Return the next lines of some file, with its path; None when there are none."""
        if self._listed is None or self._clock() - self._listed >= _LISTING_SECONDS:
            self._list()
        if self._rests:
            return self._given(*self._rests.pop(0))
        paths = list(self._tails)
        for number in range(len(paths)):
            path = paths[(self._turn + number) % len(paths)]
            tail = self._tails[path]
            block = tail.read(size_bytes, max_lines)
            if block is None and tail.replaced:
                self._list()
                return self.read(size_bytes, max_lines)
            if block is not None:
                # The next read begins with the next file, so that none is starved.
                self._turn = (self._turn + number + 1) % len(paths)
                return self._given(path, block)
        return None

    def _given(self, path: str, block: Block) -> tuple[str, Block]:
        self.offsets[path] = block.offset
        return path, block

    def close(self) -> None:
        """Close all files."""
        for tail in self._tails.values():
            tail.close()

    def _list(self) -> None:
        if self._listing.is_single:
            # It is followed whether or not it exists, and needs no second look.
            self._listed = float("inf")
            path = self._listing.path
            if self._share.has(path):
                self._tails[path] = Tail(path, self.offsets.get(path))
            return
        self._listed = self._clock()
        names = {path: _inode(path) for path in sorted(self._listing.paths())}
        # A rotation compresses old files: those were read under their former names.
        mine = {p: i for p, i in names.items() if self._share.has(p) and not is_compressed(p)}
        known = {offset.get("inode"): offset for offset in self.offsets.values()}
        known |= {tail.inode: tail.offset for tail in self._tails.values()}
        for path, inode in mine.items():
            tail = self._tails.get(path)
            if tail is None:
                self._begin(path, known.get(inode) or self._gone(path, set(mine.values())))
            elif tail.inode not in (None, inode):
                if tail.inode not in mine.values() and (rest := tail.finish()) is not None:
                    self._rests.append((path, rest))
                tail.close()
                self._begin(path, known.get(inode))

    def _gone(self, path: str, inodes: set[int | None]) -> Mapping[str, Any] | None:
        """Return where the file of that name stood, unless that one has another name now."""
        offset = self.offsets.get(path)
        return None if offset is None or offset.get("inode") in inodes - {None} else offset

    def _begin(self, path: str, offset: Mapping[str, Any] | None) -> None:
        tail = self._tails[path] = Tail(path, offset, alone=False)
        # At once, before a rotation gives the name to yet another file.
        tail.open()
        if offset is not None or path in self.offsets:
            self.offsets[path] = offset or {"position": 0}


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None
