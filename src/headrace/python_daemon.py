"""Spark's daemon for Python workers: imports once the modules that all workers need.

For the first task that runs Python, the JVM starts ``python -m headrace.python_daemon
pyspark.worker``, with PySpark's zips first on the path, and asks it to fork a worker for each
concurrent task. With ``pyspark.daemon``, the modules in the zips would be compiled at each
start, and each worker would import PyArrow and Headrace itself.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["without_zips"]

# None of these modules has a busy thread in the parent at the fork: Arrow creates its pools at
# first use, and jemalloc, whose thread is waiting, has its own fork handlers.
_NEEDED = ("pyspark.worker", "pyarrow.compute", "pyarrow.parquet", "headrace.dataplane")


def without_zips(path: Sequence[str]) -> list[str]:
    """Return the import path without the zips of the installed PySpark.

    The zips contain the same modules as the package, whose bytecode Python caches. Zips of
    another PySpark stay, because its JVM needs that version.
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
    gc.disable()  # everything imported stays in memory
    for name in _NEEDED:
        importlib.import_module(name)
    # Workers then neither scan these objects for garbage nor copy their pages by scanning.
    gc.freeze()
    gc.enable()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    _main()
