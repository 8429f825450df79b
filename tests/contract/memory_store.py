"""An object store in memory: no folders, no renames, puts on a condition, as on S3."""

import io
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from typing_extensions import override

from headrace.sdk.location import Entry, FileInfo, Location


@dataclass(frozen=True)
class _Object:
    data: bytes
    info: FileInfo


class _Upload(io.BytesIO):
    """Is there when it is closed."""

    def __init__(self, store: "MemoryStore", at: Location) -> None:
        super().__init__()
        self._store, self._at = store, at

    @override
    def close(self) -> None:
        if not self.closed:
            self._store.put(self._at, self.getvalue())
        super().close()


@dataclass
class MemoryStore:
    """Objects by their paths."""

    scheme: str = "memory"
    _objects: dict[str, _Object] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)
    _locks: dict[str, Any] = field(default_factory=dict)
    _versions: Iterator[int] = field(default_factory=count)

    def info(self, at: Location) -> FileInfo | None:
        if at.path in self._objects:
            return self._objects[at.path].info
        is_folder = any(path.startswith(at.path + "/") for path in list(self._objects))
        return FileInfo(0, 0, 0, "", is_folder=True) if is_folder else None

    def list(self, at: Location) -> Iterator[Entry]:
        begin = at.path + "/"
        below = [path[len(begin) :] for path in list(self._objects) if path.startswith(begin)]
        for name in {path.partition("/")[0] for path in below}:
            found = at / name
            yield Entry(found, found.path not in self._objects, is_link=False, info=found.info)

    def read(self, at: Location) -> bytes:
        return self._object(at).data

    def open_input(self, at: Location) -> Any:
        return io.BytesIO(self._object(at).data)

    def open_output(self, at: Location) -> Any:
        return _Upload(self, at)

    def put(self, at: Location, data: bytes, *, up_to: Location | None = None) -> None:
        now, version = time.time_ns(), str(next(self._versions))
        self._objects[at.path] = _Object(data, FileInfo(len(data), now, now, version))

    def put_new(self, at: Location, data: bytes) -> bool:
        with self._lock:
            if at.path in self._objects:
                return False
            self.put(at, data)
            return True

    def move(self, source: Location, target: Location) -> None:
        self.put(target, self.read(source))
        self.delete(source)

    def delete(self, at: Location) -> None:
        self._objects.pop(at.path, None)

    def delete_folder(self, at: Location) -> bool:
        for path in [path for path in self._objects if path.startswith(at.path + "/")]:
            del self._objects[path]
        return True

    def make_folder(self, at: Location) -> None:
        pass

    def touch(self, at: Location) -> None:
        self.put(at, self.read(at))

    def sync(self, files: Iterable[Location], *, up_to: Location | None = None) -> None:
        pass

    @contextmanager
    def lock(self, at: Location) -> Iterator[None]:
        with self._lock:
            held = self._locks.setdefault(at.path, threading.Lock())
        with held:
            yield

    def resolve(self, at: Location) -> Location:
        return at

    def free_bytes(self, at: Location) -> int | None:
        return None

    def _object(self, at: Location) -> _Object:
        if at.path not in self._objects:
            raise FileNotFoundError(at.path)
        return self._objects[at.path]
