"""The logs that a path, a folder or a pattern names, followed together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headrace_plugins.connectors.file.descriptors import Descriptors
from headrace_plugins.connectors.file.rotation import Siblings, base_path, is_packed
from headrace_plugins.connectors.file.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace_plugins.connectors.file.listing import Listing, Share
    from headrace_plugins.connectors.file.tail import Block

__all__ = ["Followed"]

_LISTING_SECONDS = 1.0
_TIMES_AS_LONG = 20
"""A listing that takes long comes after as many times as long."""


class Followed:
    """Reads what is added to the logs of a listing, from each in turn.

    A pattern such as ``app.log*`` also finds the names that a rotation gives to files: they
    belong to the log whose name they had. Where that log is not followed itself, as with
    ``app.log.*`` or with a file for each day, they are followed one by one.

    Args:
        listing: What to follow.
        share: Which of the logs.
        offsets: Where each log stood, by its path; see ``Tail``.
        rotate_wait: How many seconds a rotated file must have been quiet to be finished.
        clock: Gives seconds that only grow.
    """

    def __init__(
        self,
        listing: Listing,
        share: Share,
        offsets: Mapping[str, Mapping[str, Any]],
        *,
        rotate_wait: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listing = listing
        self._share = share
        self._stored = {path: each for path, each in offsets.items() if listing.covers(path)}
        # Of another path that was configured once, and may be again.
        self._others = {
            path: each for path, each in offsets.items() if path not in self._stored
        }
        self._wait = rotate_wait
        self._clock = clock
        self._descriptors = Descriptors()
        self._siblings = Siblings()
        self._tails: dict[str, Tail] = {}
        self._offsets: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        self._found: set[str] = set()
        self._turn = 0
        self._list_at: float | None = None

    @property
    def offsets(self) -> dict[str, Mapping[str, Any]]:
        """Return where each log stands, by its path."""
        followed = (item for each in self._offsets.values() for item in each.items())
        return {**self._others, **dict(followed)}

    def read(self, size_bytes: int, max_lines: int | None) -> tuple[str, Block] | None:
        """Return the next lines of some log, with its path; None when there are none."""
        if self._list_at is None or self._clock() >= self._list_at:
            self._list()
        paths = list(self._tails)
        for number in range(len(paths)):
            path = paths[(self._turn + number) % len(paths)]
            block = self._tails[path].read(size_bytes, max_lines)
            if block is not None:
                # The next read begins with the next log, so that none is starved.
                self._turn = (self._turn + number + 1) % len(paths)
                self._offsets[path] = self._tails[path].offsets
                return path, block
        return None

    def close(self) -> None:
        """Close all files."""
        self._descriptors.close_all()
        for tail in self._tails.values():
            tail.close()

    def _list(self) -> None:
        begun = time.monotonic()
        if self._listing.is_single:
            path = self._listing.path
            if path not in self._tails and self._share.has(path):
                self._follow(path, [path], has_current=True)
        else:
            self._list_all()
        took = time.monotonic() - begun
        self._list_at = self._clock() + max(_LISTING_SECONDS, took * _TIMES_AS_LONG)

    def _list_all(self) -> None:
        self._found = set(self._listing.paths())
        logs: dict[str, list[str]] = {}
        # A rotation compresses old files: those were read under their former names.
        for path in [*self._stored, *(each for each in self._found if not is_packed(each))]:
            if self._share.has(base := base_path(path)):
                logs.setdefault(base, []).append(path)
        for path, names in sorted(logs.items()):
            has_current = path in names
            if path not in self._tails:
                self._follow(path, names, has_current=has_current)
            elif has_current:
                self._tails[path].begin_current()
        self._stored = {}
        for path in self._tails.keys() - logs.keys():
            self._forget(path)

    def _follow(self, path: str, names: list[str], *, has_current: bool) -> None:
        tail = self._tails[path] = Tail(
            path,
            {each: self._stored[each] for each in sorted(names) if each in self._stored},
            rotate_wait=self._wait,
            clock=self._clock,
            descriptors=self._descriptors,
            siblings=self._siblings,
            begins_with=lambda each: each in self._found,
            has_current=has_current,
        )
        self._offsets[path] = tail.offsets

    def _forget(self, path: str) -> None:
        """Forget a log whose files are gone for long."""
        self._offsets[path] = self._tails[path].offsets
        if self._tails[path].is_gone:
            self._tails.pop(path).close()
            del self._offsets[path]
