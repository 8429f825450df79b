"""Upkeep of a table: small files are joined, and what no version needs is deleted."""

from __future__ import annotations

import re
import time
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
from headrace.sdk.delta import newest_change, staging_folder
from headrace.sdk.deltalog import (
    LOG,
    actions_in,
    create_checkpoint,
    flush_commits,
    newest_commit,
)
from headrace.sdk.location import Location
from headrace.sdk.sink import run_in_workers
from headrace_plugins.connectors.delta.compaction import Compaction
from headrace_plugins.connectors.delta.table import (
    HIDDEN,
    created_table,
    merge_obstacle,
    properties_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


log = structlog.get_logger(__name__)

_DATA = "data"
_GRACE_SECONDS = 7 * 24 * 3600  # as long as Delta keeps files that no version names
_ATTEMPT = re.compile(r"\d{12,}-\d+")


class Vacuum(Enum):
    """In which tables replaced files are deleted."""

    CREATED = "created"
    ALWAYS = "always"
    NEVER = "never"


class Upkeep:
    """Decides, after each commit of one task, whether the table is due."""

    def __init__(self, interval_commits: int, vacuum: Vacuum) -> None:
        """Be due whenever the table's version passes a multiple; 0 is never."""
        self._interval = interval_commits
        self._vacuum = vacuum
        self._seen: dict[Location, int] = {}

    def after_commit(self, spark: SparkSession, table: Location, application: str) -> None:
        """Maintain the table if it is due. What goes wrong is logged and left for next time."""
        version = max(newest_commit(table), 0)
        before = self._seen.get(table, version - 1)
        self._seen[table] = version
        if not self._interval or before // self._interval == version // self._interval:
            return
        work = Maintenance(table=table, application=application, vacuum=self._vacuum)
        try:
            run_in_workers(spark, [work.run])
        except (HeadraceError, PySparkException, Py4JError) as error:
            log.warning("delta.upkeep_failed", table=str(table), error=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """One look after a table; it is pickled to a worker.

    A table's folder may hold what is not part of it: other tables, notes, files that other
    tasks and programs are about to commit. So files are deleted only where the table's own
    log says that they were replaced (Delta's VACUUM LITE), and where this application has
    staged them itself.
    """

    table: Location
    application: str
    """Names the sink task in marks; what it staged is its own."""
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
        if merge_obstacle(DeltaTable(str(self.table))) is None:
            table = DeltaTable(str(self.table))
            before = int(table.version())
            compaction = Compaction(table=self.table, application=self.application)
            removed, added = compaction.run(table)
            # Before the files that it replaces may be deleted.
            flush_commits(self.table, None, before)
            log.info("delta.compacted", table=str(self.table), removed=removed, added=added)
        # Before the checkpoint, which forgets the files that may be deleted.
        if self._may_vacuum(table := DeltaTable(str(self.table))):
            table.vacuum(dry_run=False, full=False)
        create_checkpoint(DeltaTable(str(self.table)))
        table = DeltaTable(str(self.table))
        if properties_of(table).get("delta.enableExpiredLogCleanup") != "false":
            table.cleanup_metadata()

    def _may_vacuum(self, table: DeltaTable) -> bool:
        if self.vacuum is Vacuum.CREATED:
            return created_table(self.table) == str(table.metadata().id)
        return self.vacuum is Vacuum.ALWAYS

    def _remove_leftovers(self) -> None:
        limit = time.time() - _GRACE_SECONDS
        old = [path for path in self._attempts(_DATA) if newest_change(path) < limit]
        named = set(_named_attempts(self.table)) if old else ()
        # No version ever names what is hidden.
        old += [path for path in self._attempts(HIDDEN) if newest_change(path) < limit]
        for attempt in old:
            if attempt.relative_to(self.table) not in named:
                attempt.delete_folder()

    def _attempts(self, folder: str) -> Iterator[Location]:
        own = (self.table / staging_folder(Mark(self.application, 0, 0), folder)).parent
        if not own.resolved().is_below(self.table.resolved()):
            return
        for entry in own.list():
            if _ATTEMPT.fullmatch(entry.name) and entry.is_folder and not entry.is_link:
                yield entry.location


def _named_attempts(table: Location) -> Iterator[str]:
    """Yield the folders, below ``data``, of files that a version of the table names.

    A version that can still be read has a file among those of now, or the commits since then
    have removed it, or one of them has added it.
    """
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    index = actions.schema.names.index("path")
    paths = [str(path) for path in actions.column(index).to_pylist()]
    for entry in (table / LOG).list():
        for action in actions_in(entry.location) if entry.name.endswith(".json") else ():
            paths += [action[kind]["path"] for kind in ("add", "remove") if kind in action]
    for path in paths:
        parts = unquote(path).split("/")
        for end, part in enumerate(parts):
            if _ATTEMPT.fullmatch(part):
                yield "/".join(parts[: end + 1])
