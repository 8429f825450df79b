"""What a disk holds for sure, by the system calls that programs have made.

A loss of power takes what was written to a file since it was synced last, and the names that
were made in a folder since the folder was. strace tells of both, in order.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,sendfile,copy_file_range,"
    "rename,renameat,renameat2,link,linkat,mkdir,mkdirat,unlink,unlinkat,rmdir,fsync,fdatasync"
)
MARKER = "/lost-power/"
"""A path below it is opened, in vain, to note a moment in the trace."""

_LINE = re.compile(r"(\d+) +(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?)(?:<.*>)?(?: .*)?$")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_OF_FD = re.compile(r"^-?\w+<(.*?)>(?:, |$)")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_KINDS = ("rename", "link", "mkdir", "open", "creat", "unlink", "rmdir", "fsync", "fdata", "")
_COPIES = {"sendfile": 0, "copy_file_range": 1}


class Call(NamedTuple):
    """One system call that succeeded, or a marker."""

    name: str
    args: str

    @property
    def fd_path(self) -> str:
        """Return the path of the descriptor that is its first argument."""
        found = _OF_FD.match(self.args)
        return found.group(1) if found else ""

    @property
    def paths(self) -> list[str]:
        """Return the paths that it names, absolute."""
        found = _PATH.findall(self.args)
        return [posixpath.normpath(posixpath.join(base or "/", path)) for base, path in found]


def calls(trace: Path) -> Iterator[Call]:
    """Yield what succeeded, in the order in which it ended, and the markers."""
    begun: dict[str, str] = {}
    with trace.open(errors="replace") as lines:
        for line in lines:
            if (found := _LINE.match(line.rstrip("\n"))) is None:
                continue
            thread, text = found.groups()
            if text.endswith(_UNFINISHED):
                begun[thread] = text.removesuffix(_UNFINISHED)
                continue
            if (resumed := _RESUMED.match(text)) is not None:
                text = begun.pop(thread, "") + resumed.group(1)
            if (call := _CALL.match(text)) is None:
                continue
            name, args, result = call.groups()
            if not result.startswith("-") or MARKER in args:
                yield Call(name, args)


@dataclass(eq=False)
class Node:
    """A file or folder, whatever it is called."""

    dirty: bool = False
    unsynced: set[str] = field(default_factory=set)
    """Of a folder: names in it that are not on disk."""


@dataclass
class Disk:
    """The files below one folder, and what of them would survive.

    Args:
        root: The folder; what is there before the first call is on disk.
    """

    root: str
    nodes: dict[str, Node] = field(default_factory=dict)

    def apply(self, call: Call) -> str | None:
        """Take a call; return the path that got a name by it, or None."""
        kind = next(k for k in _KINDS if call.name.startswith(k))
        match kind:
            case "rename":
                return self._move(*call.paths[:2])
            case "link":
                return self._link(*call.paths[:2])
            case "mkdir":
                return self._named(call.paths[0], Node())
            case "open" | "creat":
                return self._open(call)
            case "unlink" | "rmdir":
                self.nodes.pop(call.paths[0], None)
            case "fsync" | "fdata":
                self._sync(call.fd_path)
            case _:
                self._write(call)
        return None

    def lost(self, path: str) -> str | None:
        """Return what a loss of power now would take of a file; None for nothing."""
        node = self.nodes.get(path)
        if node is None:
            return None
        if node.dirty:
            return f"{path} is not synced"
        while path != self.root:
            folder, _, name = path.rpartition("/")
            if name in self._folder(folder).unsynced:
                return f"the name {path} is not synced"
            path = folder
        return None

    def paths_of(self, wanted: Iterable[Node]) -> list[str]:
        """Return where nodes are now."""
        nodes = set(wanted)
        return [path for path, node in self.nodes.items() if node in nodes]

    def _covers(self, path: str) -> bool:
        return path.startswith(f"{self.root}/")

    def _folder(self, path: str) -> Node:
        return self.nodes.setdefault(path, Node())

    def _named(self, path: str, node: Node) -> str | None:
        if not self._covers(path):
            return None
        self.nodes[path] = node
        folder, _, name = path.rpartition("/")
        self._folder(folder).unsynced.add(name)
        return path

    def _write(self, call: Call) -> None:
        path = call.fd_path or next(iter(call.paths), "")
        if call.name in _COPIES:
            path = re.findall(r"\d+<(.*?)>", call.args)[_COPIES[call.name]]
        if self._covers(path):
            self.nodes.setdefault(path, Node()).dirty = True

    def _sync(self, path: str) -> None:
        node = self.nodes.get(path)
        if node is not None:
            node.dirty = False
            node.unsynced.clear()

    def _open(self, call: Call) -> str | None:
        path = call.paths[0]
        if not self._covers(path) or not {"O_CREAT", "O_TRUNC"} & set(
            re.findall(r"O_\w+", call.args)
        ):
            return None
        if path in self.nodes:
            self.nodes[path].dirty |= "O_TRUNC" in call.args
            return None
        return self._named(path, Node())

    def _move(self, old: str, new: str) -> str | None:
        below = [path for path in self.nodes if path == old or path.startswith(f"{old}/")]
        moved = {path: self.nodes.pop(path) for path in below}
        for path, node in moved.items():
            if path != old and self._covers(new):
                self.nodes[new + path[len(old) :]] = node
        return self._named(new, moved.get(old, Node()))

    def _link(self, old: str, new: str) -> str | None:
        return self._named(new, self.nodes.get(old, Node()))
