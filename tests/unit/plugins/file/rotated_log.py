"""A log with its writer, what logrotate does to it, and somebody who follows it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.sdk.location import Location
from headrace_plugins.connectors.file.growing import Followed
from headrace_plugins.connectors.file.listing import Listing, Share

__all__ = ["WAIT", "RotatedLog"]

WAIT = 1000.0


@dataclass
class RotatedLog:
    """Writes numbered lines to ``app.log`` and rotates it in one of logrotate's ways.

    The writer keeps its file until ``reopen``, as a daemon does until it is signalled.
    """

    folder: Path
    pattern: str = "app.log"
    dated: bool = False
    now: float = 0.0
    written: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    stored: str = "{}"
    rotations: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.path = self.folder / "app.log"
        self.path.touch()
        self.half = ""
        self.writer = self.path.open("ab", buffering=0)
        self.follower = self._followed()

    # The writer.

    def write(self, lines: int = 1) -> None:
        """Write whole lines; the first one ends a half line."""
        for _ in range(lines):
            number, begun = len(self.written), self.half
            line = f"{begun} two {number}" if begun else f"line {number}"
            self.writer.write(f"{line.removeprefix(begun)}\n".encode())
            self.written.append(line)
            self.half = ""

    def write_half(self) -> None:
        """Begin a line. No rest is like another: by what a file begins with it is known."""
        if not self.half:
            self.half = f"line {len(self.written)} in"
            self.writer.write(self.half.encode())

    def reopen(self) -> None:
        """Go on to the new file, as a daemon does when it is signalled."""
        if self.half:
            self.write()
        self.writer.close()
        self.writer = self.path.open("ab", buffering=0)

    @property
    def size_bytes(self) -> int:
        """How much is in the log; none is there after ``nocreate``."""
        return self.path.stat().st_size if self.path.exists() else 0

    # What logrotate does.

    def rotated(self) -> list[Path]:
        """Return the rotated files, newest first."""
        found = [each for each in self.folder.iterdir() if each != self.path]
        return sorted(found, key=self._number, reverse=self.dated)

    def rename(self, *, create: bool = True) -> None:
        """Rotate by renaming."""
        self.path.rename(self._next())
        if create:
            self.path.touch()

    def copy(self) -> None:
        """Do the first half of ``copytruncate``."""
        shutil.copy(self.path, self._next())

    def truncate(self) -> None:
        """Do the second half of ``copytruncate``."""
        os.truncate(self.path, 0)

    def compress(self, *, newest: bool = False, late_seconds: int = 0) -> None:
        """Compress a rotated file; with ``delaycompress`` never the newest one.

        The result has the time from before the rotation: the writer went on for so long.
        """
        for each in self.rotated()[0 if newest else 1 :]:
            if each.suffix != ".gz":
                packed = each.with_name(f"{each.name}.gz")
                status = each.stat()
                packed.write_bytes(gzip.compress(each.read_bytes()))
                mtime_ns = status.st_mtime_ns - late_seconds * 1_000_000_000
                os.utime(packed, ns=(status.st_atime_ns, mtime_ns))
                each.unlink()
                return

    def _next(self) -> Path:
        self.rotations += 1
        if self.dated:
            return self.folder / f"app.log-{20260100 + self.rotations}"
        for each in reversed(self.rotated()):
            number = self._number(each)
            packed = ".gz" if each.suffix == ".gz" else ""
            each.rename(self.folder / f"app.log.{number + 1}{packed}")
        return self.folder / "app.log.1"

    @staticmethod
    def _number(path: Path) -> int:
        return int(path.name.removesuffix(".gz").removeprefix("app.log")[1:])

    # Who follows.

    def poll(self) -> list[str]:
        """Read what there is, and keep where that ended; return the lines."""
        found: list[str] = []
        while (read := self.follower.read(1 << 20, 3)) is not None:
            found += read[1].lines.decode().splitlines()
            self.stored = json.dumps(self.follower.offsets)
        self.found += found
        return found

    def wait(self) -> None:
        """Let the time pass that a rotated file must be quiet."""
        self.now += WAIT + 1

    def restart(self) -> None:
        """Begin again where the stored offsets say."""
        self.stop()
        self.follower = self._followed()

    def stop(self) -> None:
        """Let go of all files."""
        self.follower.close()

    def close(self) -> None:
        """End."""
        self.stop()
        self.writer.close()

    def settled(self) -> Iterator[str]:
        """Let the writer and the follower come to their end; yield what was found."""
        self.reopen()
        self.write()
        for _ in range(4):
            self.poll()
            self.wait()
        self.poll()
        yield from self.found

    def offsets(self) -> Mapping[str, Mapping[str, Any]]:
        """Return where the log stands."""
        return self.follower.offsets

    def _followed(self) -> Followed:
        return Followed(
            Listing(Location.of(self.folder / self.pattern)),
            Share(),
            json.loads(self.stored),
            rotate_wait=WAIT,
            clock=lambda: self.now,
        )
