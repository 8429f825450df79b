"""Spark's daemon of Python workers: imports once what all of its workers need.

For the first task that runs Python the JVM starts ``python -m headrace.python_daemon
pyspark.worker``, with PySpark's zips in front of the path, and asks it to fork a worker for
each task that runs at the same time. ``pyspark.daemon`` would compile the modules of the zips
at each start, and each of its workers imports PyArrow and ours by itself.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["without_zips"]

# None of them starts a thread that works in the parent when it forks: Arrow makes its pools at
# their first use, and jemalloc, whose thread waits, forks by handlers of its own.
_NEEDED = ("pyspark.worker", "pyarrow.compute", "pyarrow.parquet", "headrace.dataplane")


def without_zips(path: Sequence[str]) -> list[str]:
    """Return the import path without the zips of the PySpark that is installed on it.

    They hold the same modules as the package does, for which Python keeps what it compiles.
    Zips of another PySpark stay: they are the side of its JVM.
    """
    rest = [entry for entry in path if not entry.endswith(".zip")]
    package = PathFinder.find_spec("pyspark", rest)
    if package is None or package.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return list(path)
    zips = Path(package.origin).resolve().parent / "python" / "lib"
    return [
        entry
        for entry in path
        if not entry.endswith(".zip") or Path(entry).resolve().parent != zips
    ]


def _main() -> None:
    sys.path[:] = without_zips(sys.path)
    gc.disable()  # all of it stays
    for name in _NEEDED:
        importlib.import_module(name)
    # Workers neither look for garbage in it nor copy its pages by doing so.
    gc.freeze()
    gc.enable()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    _main()
