"""Keeps a table quick to read after many small commits, and removes what the sink left over."""

from __future__ import annotations

import json
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import unquote

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.sdk import HeadraceError, Mark, SinkError
from headrace.sdk.delta import staging_folder
from headrace.sdk.deltalog import create_checkpoint, flush_commits
from headrace_plugins.connectors.delta.target import (
    HIDDEN,
    created_table,
    merge_obstacle,
    properties_of,
)
from headrace_plugins.connectors.delta.worker import run_in_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["Maintenance", "Upkeep", "Vacuum"]

log = structlog.get_logger(__name__)

_DATA = "data"
_GRACE_SECONDS = 7 * 24 * 3600  # as long as Delta keeps files that no version names
_ATTEMPT = re.compile(r"\d{12,}-\d+")


class Vacuum(Enum):
    """Whose replaced files are deleted."""

    CREATED = "created"
    ALWAYS = "always"
    NEVER = "never"


class Upkeep:
    """Decides, after each commit of one task, whether the table is due."""

    def __init__(self, interval_commits: int, vacuum: Vacuum) -> None:
        """Be due whenever the table's version passes a multiple; 0 is never."""
        self._interval = interval_commits
        self._vacuum = vacuum
        self._seen: dict[Path, int] = {}

    def after_commit(self, spark: SparkSession, table: Path, application: str) -> None:
        """Maintain the table if it is due. What goes wrong is logged and left for next time."""
        version = _newest(table)
        before = self._seen.get(table, version - 1)
        self._seen[table] = version
        if not self._interval or before // self._interval == version // self._interval:
            return
        work = Maintenance(table=table, application=application, vacuum=self._vacuum)
        try:
            run_in_worker(spark, work.run)
        except (HeadraceError, PySparkException, Py4JError) as error:
            log.warning("delta.upkeep_failed", table=str(table), error=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """One look after a table; it is pickled to a worker.

    A table's folder may hold what is no part of it: other tables, notes, files that other
    tasks and programs are about to commit. So files are deleted only where the table's own
    log says that they were replaced (Delta's VACUUM LITE), and where this application has
    staged them itself.

    Args:
        table: The table's folder.
        application: Names the sink task in marks; what it staged is its own.
        vacuum: Whether files that newer versions have replaced are deleted.
    """

    table: Path
    application: str
    vacuum: Vacuum

    def run(self) -> None:
        """Join small files, write a checkpoint, and delete what no version needs any more.

        Tables that ``deltalake`` may not rewrite are not joined. Replaced files are deleted
        when the table's ``delta.deletedFileRetentionDuration`` has passed, and what crashed
        attempts of this application left behind after seven days.

        Raises:
            SinkError: It did not work, such as because another writer changed the same files.
        """
        try:
            self._optimize()
        except DeltaError as error:
            problem = f"The upkeep of {self.table} failed: {error}"
            raise SinkError(problem) from error
        self._remove_leftovers()

    def _optimize(self) -> None:
        if merge_obstacle(DeltaTable(self.table)) is None:
            before = int(DeltaTable(self.table).version())
            figures = DeltaTable(self.table).optimize.compact()
            # Before the files that it replaces may be deleted.
            flush_commits(self.table, None, before)
            log.info(
                "delta.compacted",
                table=str(self.table),
                removed=figures["numFilesRemoved"],
                added=figures["numFilesAdded"],
            )
        # Before the checkpoint, which forgets the files that may be deleted.
        if self._may_vacuum(DeltaTable(self.table)):
            DeltaTable(self.table).vacuum(dry_run=False, full=False)
        create_checkpoint(DeltaTable(self.table))
        table = DeltaTable(self.table)
        if properties_of(table).get("delta.enableExpiredLogCleanup") != "false":
            table.cleanup_metadata()

    def _may_vacuum(self, table: DeltaTable) -> bool:
        if self.vacuum is Vacuum.CREATED:
            return created_table(self.table) == str(table.metadata().id)
        return self.vacuum is Vacuum.ALWAYS

    def _remove_leftovers(self) -> None:
        limit = time.time() - _GRACE_SECONDS
        for attempt in self._attempts(HIDDEN):  # no version ever names them
            if _newest_change(attempt) < limit:
                shutil.rmtree(attempt, ignore_errors=True)
        old = [path for path in self._attempts(_DATA) if _newest_change(path) < limit]
        if not old:
            return
        named = set(_named_attempts(self.table))
        for attempt in old:
            if attempt.relative_to(self.table).as_posix() not in named:
                shutil.rmtree(attempt, ignore_errors=True)

    def _attempts(self, folder: str) -> Iterator[Path]:
        own = (self.table / staging_folder(Mark(self.application, 0, 0), folder)).parent
        if not own.resolve().is_relative_to(self.table.resolve()):
            return
        for path in own.glob("*-*"):
            if _ATTEMPT.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                yield path


def _named_attempts(table: Path) -> Iterator[str]:
    """Yield the folders, below ``data``, of files that a version of the table names.

    A version that can still be read has a file among those of now, or the commits since then
    have removed it, or one of them has added it.
    """
    actions = DeltaTable(table).get_add_actions(flatten=True)
    index = actions.schema.names.index("path")
    paths = [str(path) for path in actions.column(index).to_pylist()]
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            paths += [action[kind]["path"] for kind in ("add", "remove") if kind in action]
    for path in paths:
        parts = unquote(path).split("/")
        for end, part in enumerate(parts):
            if _ATTEMPT.fullmatch(part):
                yield "/".join(parts[: end + 1])


def _newest_change(folder: Path) -> float:
    """Return when anything in a folder was last written: a large attempt may take days."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            newest = max(newest, path.stat().st_mtime)
    return newest


def _newest(table: Path) -> int:
    names = (path.stem for path in (table / "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=0)
