"""Keeps a table quick to read after many small commits."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.sdk import HeadraceError, SinkError
from headrace_plugins.connectors.delta.target import merge_obstacle
from headrace_plugins.connectors.delta.worker import run_in_worker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["HIDDEN", "Upkeep", "maintain"]

log = structlog.get_logger(__name__)

HIDDEN = "_headrace"
"""The folder in the table for rows that are on their way into it."""
_KEPT_SECONDS = 7 * 24 * 3600  # as long as Delta keeps files that no version names


class Upkeep:
    """Decides, after each commit of one task, whether the table is due."""

    def __init__(self, interval_commits: int) -> None:
        """Be due whenever the table's version passes a multiple; 0 is never."""
        self._interval = interval_commits
        self._seen: dict[Path, int] = {}

    def after_commit(self, spark: SparkSession, table: Path) -> None:
        """Maintain the table if it is due. What goes wrong is logged and left for next time."""
        version = _newest(table)
        before = self._seen.get(table, version - 1)
        self._seen[table] = version
        if not self._interval or before // self._interval == version // self._interval:
            return
        try:
            run_in_worker(spark, partial(maintain, table))
        except (HeadraceError, PySparkException, Py4JError) as error:
            log.warning("delta.upkeep_failed", table=str(table), error=str(error))


def maintain(table: Path) -> None:
    """Join small files, write a checkpoint, and remove what no version needs any more.

    What crashed attempts left behind is removed after seven days, and so are the files that
    Delta's own retention lets go. Tables that ``deltalake`` may not rewrite are not joined.

    Raises:
        SinkError: It did not work, such as because another writer changed the same files.
    """
    try:
        if merge_obstacle(DeltaTable(table)) is None:
            figures = DeltaTable(table).optimize.compact()
            log.info(
                "delta.compacted",
                table=str(table),
                removed=figures["numFilesRemoved"],
                added=figures["numFilesAdded"],
            )
        DeltaTable(table).create_checkpoint()
        DeltaTable(table).cleanup_metadata()
        DeltaTable(table).vacuum(dry_run=False, full=True)
    except DeltaError as error:
        problem = f"The upkeep of {table} failed: {error}"
        raise SinkError(problem) from error
    _remove_leftovers(table)


def _remove_leftovers(table: Path) -> None:
    limit = time.time() - _KEPT_SECONDS
    for folder in (table / HIDDEN).glob("**/*-*/"):
        if folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)


def _newest(table: Path) -> int:
    names = (path.stem for path in (table / "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=0)
