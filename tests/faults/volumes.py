"""Small file systems of their own, which can be filled, made read-only and taken away."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_BALLAST = ".ballast"
_TRIES = 50


@dataclass(frozen=True)
class Volume:
    """A mounted tmpfs."""

    path: Path

    def fill(self) -> None:
        """Leave not one byte free."""
        descriptor = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        os.write(descriptor, b"\0" * size)
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give back what ``fill`` took."""
        (self.path / _BALLAST).unlink(missing_ok=True)

    def lock(self) -> bool:
        """Make it read-only; return whether nobody held a file open for writing."""
        for _ in range(_TRIES):
            if _mount("-o", "remount,ro", str(self.path)):
                return True
            time.sleep(0.02)
        return False

    def unlock(self) -> None:
        """Make it writable again."""
        if not _mount("-o", "remount,rw", str(self.path)):
            raise OSError(errno.EIO, "cannot be made writable again", str(self.path))

    @contextmanager
    def full(self) -> Iterator[None]:
        """Be full for as long as this lasts."""
        self.fill()
        try:
            yield
        finally:
            self.free()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuse writes for as long as this lasts."""
        assert self.lock(), f"{self.path} is written to"
        try:
            yield
        finally:
            self.unlock()


@contextmanager
def volume(path: Path, megabytes: int) -> Iterator[Volume]:
    """Mount a tmpfs at ``path`` for as long as this lasts."""
    path.mkdir(parents=True, exist_ok=True)
    assert _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "headrace-tests", str(path))
    try:
        yield Volume(path)
    finally:
        subprocess.run(["/bin/umount", "--lazy", path], check=True)


@cache
def may_mount() -> bool:
    """Return whether this process may mount file systems."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with volume(Path(folder), 1) as tried:
                return tried.path in {
                    Path(p.mountpoint) for p in psutil.disk_partitions(all=True)
                }
        except (AssertionError, OSError, subprocess.CalledProcessError):
            return False


def _mount(*arguments: str) -> bool:
    done = subprocess.run(["/bin/mount", *arguments], check=False, capture_output=True)
    return done.returncode == 0
