"""Who may still write a table since before the log has had it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_SECONDS, _LOOK_SECONDS = 2.0, 0.1
"""How long a look waits for those who write a new table to end, and how often it looks."""


@dataclass
class TableWriters:
    """Knows of tables that the log has got lately who writes them since before.

    What such a transaction has written is not in the log, nor yet in a snapshot.

    Args:
        now: Returns who writes the table of a name now.
    """

    now: Callable[[str], frozenset[str]]
    _left: dict[str, frozenset[str]] = field(default_factory=dict)

    def begin(self, names: Iterable[str]) -> None:
        """Take for granted that nobody writes these: the log has begun when all had ended."""
        self._left = dict.fromkeys(names, frozenset[str]())

    def forget(self, names: Iterable[str]) -> None:
        """Ask anew for these."""
        for name in names:
            self._left.pop(name, None)

    def wait(self, names: Iterable[str]) -> None:
        """Learn who writes those that are not known, and wait a moment for them to end."""
        new = {name: self.now(name) for name in names if name not in self._left}
        self._left |= new
        by = time.monotonic() + _SECONDS
        while any(map(self.may_write, new)) and time.monotonic() < by:
            time.sleep(_LOOK_SECONDS)

    def may_write(self, name: str) -> bool:
        """Return whether any of those has not ended."""
        left = self._left.get(name)
        if not left:
            return False
        self._left[name] = left = left & self.now(name)
        return bool(left)
