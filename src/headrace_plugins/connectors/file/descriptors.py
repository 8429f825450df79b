"""A bounded number of open files."""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Descriptors", "TooManyOpenFilesError"]

_MOST = 512
_FULL = {errno.EMFILE, errno.ENFILE}


class TooManyOpenFilesError(OSError):
    """No file can be opened now, as none of those that are open may be closed."""


class Owner(Protocol):
    """A file that is opened when it is needed."""

    path: str

    @property
    def may_close(self) -> bool:
        """Return whether the file can be opened again by its path."""


class Descriptors:
    """Keeps the files open that were used last. One thread uses it.

    Args:
        most: How many are open at most; by default a quarter of what the process may have,
            as it has other things to open.
    """

    def __init__(self, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = _MOST if soft == resource.RLIM_INFINITY else soft // 4
        self.most = most or max(8, min(_MOST, share))
        self._open: OrderedDict[Owner, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def find(self, owner: Owner) -> int | None:
        """Return the descriptor of a file if it is open."""
        return self._open.get(owner)

    def get(self, owner: Owner) -> int:
        """Return the descriptor of a file; open it where needed.

        Raises:
            FileNotFoundError: There is no file of that path.
            TooManyOpenFilesError: The process may open no more.
        """
        descriptor = self._open.get(owner)
        if descriptor is not None:
            self._open.move_to_end(owner)
            return descriptor
        while len(self._open) >= self.most and self._close_one():
            pass
        descriptor = self._opened(owner.path)
        self._open[owner] = descriptor
        return descriptor

    def close(self, owner: Owner) -> None:
        """Close a file if it is open."""
        descriptor = self._open.pop(owner, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close all files."""
        for owner in list(self._open):
            self.close(owner)

    def _opened(self, path: str) -> int:
        while True:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if not self._close_one():
                    raise TooManyOpenFilesError(error.errno, str(error), path) from error

    def _close_one(self) -> bool:
        owner = next(self._closable(), None)
        if owner is not None:
            self.close(owner)
        return owner is not None

    def _closable(self) -> Iterator[Owner]:
        return (owner for owner in self._open if owner.may_close)
