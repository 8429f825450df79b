"""Writes commits into a Delta table's log, each as a whole, durably, or not at all.

``deltalake`` shows a commit to readers before it is on disk, and does not say when it is:
after a loss of power the commit's file may be there and be empty, which reads as a version
that did nothing. Here a commit is flushed before it gets its name, as the transaction log
protocol has it (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from headrace.sdk.errors import DataLostError
from headrace.sdk.location import Location, sync

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.sdk.mark import Mark

LOG = "_delta_log"
ACTIONS = "headrace.actions"
"""Where a commit says how many actions it has: one that is torn between two has fewer."""
_UNESCAPED = "/:=+&'()~!,@$;"
"""What deltalake leaves as it is in the path of a file."""
_RECENT_SECONDS = 120
"""Linux writes what is older than 30 seconds back by itself, at the next of its rounds."""


class CommitConflictError(Exception):
    """Another writer has committed what this commit must not follow.

    Args:
        application: Whose transaction it was, where that is why.
    """

    def __init__(self, version: int, application: str | None = None) -> None:
        super().__init__(f"version {version} was committed meanwhile")
        self.version = version
        self.application = application


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
    """Commit added and removed files behind the newest version; return the new version.

    Commits that other writers have made since ``seen`` are passed, but for those that change
    the table's definition, have a transaction of one of the same applications or of one that
    is ``watched``, or remove a file that is to be removed: Delta's rule for appends and
    removals that no row decides which others have added meanwhile. ``seen`` is the version
    that the actions, ``add`` and ``remove``, were planned with; their files are durable.
    ``transactions`` are numbers by application, ``details`` are added to ``commitInfo``.
    Raises CommitConflictError: another writer was first.
    """
    millis = int(now.timestamp() * 1000)
    info = {"timestamp": millis, "operation": operation, "operationParameters": {}, **details}
    marks = [
        {"txn": {"appId": name, "version": number}} for name, number in transactions.items()
    ]
    version = max(seen, _checkpointed(table)) + 1
    if version > seen + 1:
        # Commits that a checkpoint stands for may be gone, and their names free.
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
    """Create a table whose first commit is durable when it is there; None if one is there.

    ``configuration`` are the properties that Delta knows, ``properties`` further ones. Raises
    DeltaError: a column or a property is refused.
    """
    log = path / LOG
    # The first commits of a table may be forgotten.
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
    # Whoever creates a table first is to be the only one.
    if not write_commit(path, 0, *actions):
        return None
    sync([log], up_to=path.parent)
    return DeltaTable(str(path))


def write_commit(table: Location, version: int, *actions: Mapping[str, Any]) -> bool:
    """Write one commit as a whole or not at all; return False when the version is taken."""
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    return commit_file(table, version).put_new(text)


def commit_file(table: Location, version: int) -> Location:
    """Return the file of a commit."""
    return table / LOG / f"{version:020d}.json"


def flush_commits(table: Location, mark: Mark | None, since: int = -1) -> None:
    """Make commits durable, with the files that they added, that others have written.

    Called after a commit through ``deltalake`` or Spark, and where a mark is found that an
    earlier attempt may have left and not flushed. Commits up to ``since``, and those that are
    older than the operating system leaves anything unwritten, are durable already. Raises
    DataLostError: the commit of ``mark`` names a file that is not as it was written: the power
    was lost after the commit was on disk, and before its files were.
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
            # Upkeep forgets a commit only for a checkpoint that stands for it, durably.
            left = [path for path in commits if path.exists()]
            if left == commits:
                raise
            commits = left
        else:
            return


def create_checkpoint(table: DeltaTable) -> None:
    """Write a checkpoint of a table, durably: readers trust it more than the commits."""
    table.create_checkpoint()
    log = table_folder(table) / LOG
    begin = f"{table.version():020d}.checkpoint"
    parts = [entry.location for entry in log.list() if entry.name.startswith(begin)]
    sync([*parts, log / "_last_checkpoint"])


def actions_in(path: Location) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit."""
    # Texts in statistics may hold what Python takes for the end of a line, such as U+2028.
    for line in path.read_text().split("\n"):
        if line:
            yield json.loads(line)


def encoded_path(path: str) -> str:
    """Return a file's path, relative to the table, as the log has it."""
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
    """Return a file; None if it is gone, and of another commit."""
    file = table / unquote(name)
    if written is None:
        return file if file.exists() else None
    version, size_bytes = written
    found = file.info()
    if found is not None and found.size_bytes == size_bytes:
        return file
    problem = (
        f"Version {version} of the table {table} names {unquote(name)}, which is missing or "
        "torn, as after a loss of power."
    )
    fix = (
        f"Restore it from a backup; or, if the version is the table's newest, remove "
        f"{commit_file(table, version).name} from its log, and start the task again."
    )
    raise DataLostError(problem, fix=fix)


def newest_commit(table: Location) -> int:
    """Return the newest version in a table's log; -1 for none."""
    names = (entry.name.removesuffix(".json") for entry in (table / LOG).list())
    return max((int(name) for name in names if name.isdigit()), default=-1)
