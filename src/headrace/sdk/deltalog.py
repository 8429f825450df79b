"""Writes commits to a Delta table's log, each atomically and durably.

``deltalake`` makes a commit visible before it is on disk, and does not report when it is: after
a power failure the commit's file may exist but be empty, which reads as a version without
changes. This module flushes a commit before it gets its final name, as the transaction log
protocol requires (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from headrace.sdk.errors import DataLostError
from headrace.sdk.location import Location, sync

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.sdk.mark import Mark

LOG = "_delta_log"
ACTIONS = "headrace.actions"
"""The entry of a commit with its number of actions: a commit torn between two has fewer."""
_UNESCAPED = "/:=+&'()~!,@$;"
"""The characters that deltalake does not escape in a file path."""
_MISSED = (
    "Expected contiguous commit files, but found gap",
    "Gap between checkpoint version",
    "No table metadata or protocol found in delta log",
)
"""deltalake's texts if a commit is missing: after another, after a checkpoint, or the first."""
_LISTINGS = 5
"""Busy writers made 6 of 137 listings miss a commit; 5 in a row are a damaged log."""
_PAUSE_SECONDS = 0.03
_RECENT_SECONDS = 120
"""Linux writes back data older than 30 seconds at its next writeback round."""


class CommitConflictError(Exception):
    """Another writer has made a commit that this commit must not follow.

    Args:
        application: The application of the conflicting transaction, if that is the reason.
    """

    def __init__(self, version: int, application: str | None = None) -> None:
        super().__init__(f"version {version} was committed meanwhile")
        self.version = version
        self.application = application


def load_table(table: Location, version: int | None = None) -> DeltaTable:
    """Load a table, or one version of it. Raises DeltaError as deltalake does.

    A folder is not listed in one moment: of two commits that are made meanwhile, the listing
    may contain only the later one, and deltalake reports a gap. The log is then listed again,
    at most five times, with pauses of half a second in all; a gap that remains is raised.
    """
    for number in range(_LISTINGS - 1):
        try:
            return DeltaTable(str(table), version=version)
        except DeltaError as error:
            if not misses_commit(error):
                raise
        time.sleep(_PAUSE_SECONDS * 2**number)
    return DeltaTable(str(table), version=version)


def misses_commit(error: DeltaError) -> bool:
    """Return whether the log lacked a commit, perhaps one that was made while it was listed."""
    return any(text in str(error) for text in _MISSED)


def commit(
    table: Location,
    seen: int,
    actions: Sequence[Mapping[str, Any]],
    *,
    operation: str,
    transactions: Mapping[str, int],
    details: Mapping[str, Any],
    now: datetime,
    watched: Collection[str] = (),
) -> int:
    """Commit added and removed files after the newest version; return the new version.

    Commits of other writers since ``seen`` are accepted, except commits that change the table's
    definition, have a transaction of one of the same applications or of a ``watched`` one, or
    remove a file that this commit removes. This is Delta's rule for appends, and for removals
    that do not depend on rows added in the meantime. ``seen`` is the version for which the
    actions, ``add`` and ``remove``, were planned; their files are already durable.
    ``transactions`` are transaction numbers by application; ``details`` are added to
    ``commitInfo``. Raises CommitConflictError: another writer was first.
    """
    millis = int(now.timestamp() * 1000)
    info = {"timestamp": millis, "operation": operation, "operationParameters": {}, **details}
    marks = [
        {"txn": {"appId": name, "version": number}} for name, number in transactions.items()
    ]
    version = max(seen, _checkpointed(table)) + 1
    if version > seen + 1:
        # Commits covered by a checkpoint may be deleted, and their names free.
        raise CommitConflictError(version)
    info[ACTIONS] = 1 + len(marks) + len(actions)
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    while not write_commit(table, version, {"commitInfo": info}, *marks, *actions):
        _check_passable(table, version, {*transactions, *watched}, removed)
        version += 1
    return version


def create_table(
    path: Location,
    schema: DeltaSchema,
    *,
    name: str | None = None,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> DeltaTable | None:
    """Create a table whose first commit is durable once visible; None if a table exists.

    ``configuration`` are properties that Delta knows, ``properties`` further ones. Raises
    DeltaError: a column or a property is rejected.
    """
    log = path / LOG
    # The first commits of a table may have been deleted.
    if any(entry.name[:1].isdigit() for entry in log.list()):
        return None
    with TemporaryDirectory() as draft:
        DeltaTable.create(
            draft,
            schema=schema,
            name=name,
            partition_by=list(partition_by) or None,
            configuration=dict(configuration or {}),
        )
        actions = list(actions_in(commit_file(Location.of(Path(draft)), 0)))
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= properties or {}
    log.make_folder()
    # Only the first of several creators may succeed.
    if not write_commit(path, 0, *actions):
        return None
    sync([log], up_to=path.parent)
    return load_table(path)


def write_commit(table: Location, version: int, *actions: Mapping[str, Any]) -> bool:
    """Write one commit atomically; return False if the version is taken."""
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    return commit_file(table, version).put_new(text)


def commit_file(table: Location, version: int) -> Location:
    """Return the file of a commit."""
    return table / LOG / f"{version:020d}.json"


def flush_commits(table: Location, mark: Mark | None, since: int = -1) -> None:
    """Make commits of other writers durable, with the files that they added.

    Called after a commit through ``deltalake`` or Spark, and after finding a mark that an
    earlier attempt may have left without flushing it. Commits up to ``since``, and commits
    older than the operating system's writeback delay, are already durable. Raises
    DataLostError: the commit of ``mark`` names a file that is missing or incomplete, because
    the power failed after the commit was on disk and before its files were.
    """
    version = max(since + 1, 0)
    if since < 0:
        version = newest_commit(table)
        recent = time.time_ns() - _RECENT_SECONDS * 1_000_000_000
        while version > 0:
            found = commit_file(table, version - 1).info()
            if found is None or found.mtime_ns < recent:
                break
            version -= 1
    commits: list[Location] = []
    added: dict[str, tuple[int, int] | None] = {}
    while (path := commit_file(table, version)).exists():
        commits.append(path)
        actions = list(actions_in(path))
        marks = [(a["txn"]["appId"], a["txn"]["version"]) for a in actions if "txn" in a]
        is_own = mark is not None and (mark.application, mark.batch) in marks
        for action in actions:
            if "add" in action:
                written = version, int(action["add"]["size"])
                added[action["add"]["path"]] = written if is_own else None
            elif "remove" in action:  # and perhaps deleted since
                added.pop(action["remove"]["path"], None)
        version += 1
    files = [_whole(table, name, written) for name, written in added.items()]
    there = [file for file in files if file is not None]
    while True:
        try:
            sync([*there, *commits], up_to=table)
        except FileNotFoundError:
            # Maintenance deletes a commit only if a durable checkpoint covers it.
            left = [path for path in commits if path.exists()]
            if left == commits:
                raise
            commits = left
        else:
            return


@contextmanager
def flushing(table: Location, mark: Mark | None, since: int = -1) -> Iterator[None]:
    """Flush the commits that ``deltalake`` or Spark makes in the block, as ``flush_commits``.

    Also if the block fails: an error may follow the commit, and a retry finds it done.
    """
    try:
        yield
    finally:
        if (table / LOG).exists():
            flush_commits(table, mark, since)


def create_checkpoint(table: DeltaTable) -> None:
    """Write a checkpoint of a table, durably: readers prefer it to the commits."""
    table.create_checkpoint()
    log = table_folder(table) / LOG
    begin = f"{table.version():020d}.checkpoint"
    parts = [entry.location for entry in log.list() if entry.name.startswith(begin)]
    sync([*parts, log / "_last_checkpoint"])


def actions_in(path: Location) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit."""
    # Strings in statistics may contain characters that Python treats as line ends (U+2028).
    for line in path.read_text().split("\n"):
        if line:
            yield json.loads(line)


def encoded_path(path: str) -> str:
    """Return a file's path relative to the table, escaped as in the log."""
    return quote(path, safe=_UNESCAPED)


def table_folder(table: DeltaTable) -> Location:
    """Return the folder of a table."""
    return Location.of(table.table_uri)


def _check_passable(
    table: Location, version: int, applications: set[str], removed: set[str]
) -> None:
    for action in actions_in(commit_file(table, version)):
        if "metaData" in action or "protocol" in action:
            raise CommitConflictError(version)
        if action.get("remove", {}).get("path") in removed:
            raise CommitConflictError(version)
        application = action.get("txn", {}).get("appId")
        if application in applications:
            raise CommitConflictError(version, application)


def _checkpointed(table: Location) -> int:
    try:
        last = json.loads((table / LOG / "_last_checkpoint").read_text())
    except (FileNotFoundError, ValueError):
        return -1
    return int(last["version"])


def _whole(table: Location, name: str, written: tuple[int, int] | None) -> Location | None:
    """Return a file; None if it is missing and not from the mark's own commit."""
    file = table / unquote(name)
    if written is None:
        return file if file.exists() else None
    version, size_bytes = written
    found = file.info()
    if found is not None and found.size_bytes == size_bytes:
        return file
    problem = (
        f"Version {version} of the table {table} names {unquote(name)}, which is missing or "
        "incomplete, probably after a power failure."
    )
    fix = (
        f"Restore it from a backup; or, if the version is the table's newest, remove "
        f"{commit_file(table, version).name} from its log, and restart the task."
    )
    raise DataLostError(problem, fix=fix)


def newest_commit(table: Location) -> int:
    """Return the newest version in a table's log; -1 if there is none."""
    names = (entry.name.removesuffix(".json") for entry in (table / LOG).list())
    return max((int(name) for name in names if name.isdigit()), default=-1)
