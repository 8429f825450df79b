"""File system calls of Python's own that fail, one by one."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WATCHED = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.truncate": 0}
"""The audit events of calls that change something, and which argument is its path."""


@dataclass
class FailingCalls:
    """Lets the n-th call that changes something below a folder fail.

    Calls are seen by an audit hook (https://docs.python.org/3/library/audit_events.html),
    which also sees those of libraries that are written in Python; ``os.fsync`` has none and
    is wrapped.

    Args:
        folder: Where calls fail.
        number: Which of them fails, from 1; all after it are well again.
        code: The errno.
    """

    folder: Path
    number: int
    code: int
    calls: int = 0
    failed: list[str] = field(default_factory=list)

    def see(self, event: str, path: object) -> None:
        """Count a call, and fail it if it is its turn."""
        if not str(path).startswith(str(self.folder)):
            return
        self.calls += 1
        if self.calls == self.number:
            self.failed.append(event)
            raise OSError(self.code, os.strerror(self.code), str(path))


_active: FailingCalls | None = None
_hooked = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _active is None or event not in _WATCHED:
        return
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike) or not _writes(mode, flags):
            return
    _active.see(event, os.fspath(arguments[_WATCHED[event]]))


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


@contextmanager
def failing_call(folder: Path, number: int, code: int = errno.ENOSPC) -> Iterator[FailingCalls]:
    """Let the n-th call below ``folder`` fail for as long as this lasts."""
    global _active, _hooked  # noqa: PLW0603 - an audit hook stays for ever, and is switched
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    fsync = os.fsync

    def failing_fsync(descriptor: int) -> None:
        if _active is not None:
            _active.see("os.fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    _active = FailingCalls(folder, number, code)
    os.fsync = failing_fsync  # type: ignore[assignment]
    try:
        yield _active
    finally:
        _active = None
        os.fsync = fsync
