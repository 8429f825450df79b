"""Commits Parquet files to Delta tables, each batch exactly once.

Spark writes the files and ``deltalake`` commits them, because a commit through Spark
costs about a second more and a batch is often smaller than that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from headrace.sdk.deltalog import CommitConflictError, commit, encoded_path, table_folder
from headrace.sdk.errors import RetriableError, StaleEpochError
from headrace.sdk.filestats import file_stats
from headrace.sdk.folders import folder_name, written_parts
from headrace.sdk.location import Location, sync

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame

    from headrace.sdk.mark import Mark

QUIET = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""No checkpoint with the commit: upkeep is a separate task, and no batch waits for it."""

_RECEIPT = "headrace.receipt"
_APPLICATION = "headrace.application"
_DATA = "data"
_NEAR = 20
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file of a Delta table.

    Args:
        path: Relative to the table's folder.
        stats: Its statistics as Delta's JSON; None for the number of rows only.
    """

    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    stats: str | None = None


def stage_parquet(
    frame: DataFrame,
    table: Location,
    mark: Mark,
    *,
    folder: str = _DATA,
    partition_by: Sequence[str] = (),
    stats: bool = False,
) -> list[AddedFile]:
    """Write ``frame`` under the folder ``table``, in a folder of this attempt's own.

    The epoch is part of the name: an old owner that still writes cannot touch the files of the
    new one. Returns the files in partition order, without empty ones. Readers that list files
    skip a ``folder`` whose name begins with "_". The values of the columns of ``partition_by``
    are texts of the kind that Delta has for booleans, integers, decimals, dates and strings
    only. With ``stats``, each file's statistics are taken from its footer.
    """
    to = table / staging_folder(mark, folder)
    # The file _SUCCESS would stay behind in the table for ever.
    writer = frame.write.mode("overwrite").option(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
    )
    (writer.partitionBy(*partition_by) if partition_by else writer).parquet(to.spark_path)
    return staged_files(table, mark, folder=folder, partition_by=partition_by, stats=stats)


def staged_files(
    table: Location,
    mark: Mark,
    *,
    folder: str = _DATA,
    partition_by: Sequence[str] = (),
    stats: bool = False,
) -> list[AddedFile]:
    """Return the files that an attempt has staged, as ``stage_parquet`` does."""
    staged = table / staging_folder(mark, folder)
    found = []
    for entry in staged.walk():
        if entry.name.startswith(".") and entry.name.endswith(".crc"):
            # Hadoop's checksums beside the files: one that is torn by a loss of power would
            # make Spark refuse a file that is good.
            entry.location.delete()
        elif entry.name.endswith(".parquet"):
            found.append(entry.location)
    found.sort(key=lambda file: file.path.split("/"))
    files = (_added(path, table, partition_by, stats=stats) for path in found)
    return [file for file in files if file.rows]


def staged_parts(
    table: Location,
    mark: Mark,
    names: Sequence[str],
    *,
    folder: str = _DATA,
    stats: bool = True,
) -> list[AddedFile]:
    """Return the files that an attempt has staged by ``write_part``, by their names.

    All other files in its folder are deleted. With ``stats``, each has statistics.
    """
    found = written_parts(table / staging_folder(mark, folder), names)
    return [file for path in found if (file := _added(path, table, (), stats=stats)).rows]


def discard_staged(table: Location, mark: Mark, *, folder: str = _DATA) -> None:
    """Remove what an attempt staged; nothing happens when there is none."""
    (table / staging_folder(mark, folder)).delete_folder()


def discard_other_attempts(table: Location, mark: Mark, *, folder: str = _DATA) -> None:
    """Remove what older attempts at the same batch staged, such as those that crashed.

    Called once the table was seen to take this attempt's files: the others are then in no
    version of it. A newer owner may still be at work; what it stages is its own.
    """
    for other in (table / staging_folder(mark, folder)).parent.list():
        batch, _, epoch = other.name.rpartition("-")
        is_attempt = batch == f"{mark.batch:012d}" and epoch.isdecimal()
        if is_attempt and int(epoch) < mark.epoch:
            other.location.delete_folder()


def newest_change(folder: Location) -> float:
    """Return when anything in a folder was last written: a large attempt may take days."""
    infos = [folder.info(), *(entry.info() for entry in folder.walk())]
    return max((found.mtime_ns for found in infos if found is not None), default=0) / 1e9


def find_receipt(table: DeltaTable, mark: Mark) -> str | None:
    """Return the receipt of a batch that the table already holds, else None.

    It is empty when the table's log has forgotten it. The table must be loaded again. Raises
    StaleEpochError when it holds a newer batch of the same application.
    """
    held = table.transaction_version(mark.application)
    if held is None or held < mark.batch:
        return None
    if held > mark.batch:
        problem = (
            f"The target already holds batch {held} of {mark.application}, "
            f"and was asked for batch {mark.batch}."
        )
        fix = "Another worker runs this task, or the state folder was set back; restore it."
        raise StaleEpochError(problem, fix=fix)
    for most in (_NEAR, None):  # it is rarely far, and a log may be long
        for entry in table.history(most):
            metadata = entry | _user_metadata(entry)
            if metadata.get(_APPLICATION) == mark.application:
                return str(metadata.get(_RECEIPT, ""))
    return ""


def add_files(
    table: DeltaTable,
    files: Sequence[AddedFile],
    mark: Mark,
    receipt: str,
    now: datetime,
    *,
    details: Mapping[str, str] | None = None,
    flushed: bool = False,
    removed: Sequence[Mapping[str, Any]] = (),
    transactions: Mapping[str, int] | None = None,
    watched: Collection[str] = (),
) -> None:
    """Add staged files, the mark and the receipt in one transaction, durably.

    The files are flushed first unless they are ``flushed``. ``details`` is what else the commit
    is to say, by name; ``removed`` are actions that take files out of the table,
    ``transactions`` are more numbers by application, and ``watched`` are applications that may
    have committed nothing since the table was read.

    Guarantee 2: a second transaction of one application that did not see the first is
    refused. Raises StaleEpochError if that is the mark's, and RetriableError if it is another
    of ``transactions`` or ``watched``, or when another writer changed the table's definition
    or removed one of the files meanwhile.
    """
    folder = table_folder(table)
    if not flushed:
        # Guarantee 1: a commit never names what the disk does not have.
        sync((folder / file.path for file in files), up_to=folder)
    try:
        commit(
            folder,
            int(table.version()),
            [*removed, *(add_action(file, now) for file in files)],
            operation="WRITE",
            transactions={**(transactions or {}), mark.application: mark.batch},
            watched=watched,
            details={**_metadata(mark, receipt), **(details or {})},
            now=now,
        )
    except CommitConflictError as error:
        if error.application == mark.application:
            problem = f"Another owner has committed batch {mark.batch} of {mark.application}."
            raise StaleEpochError(problem) from error
        problem = f"The table was changed while a batch was added to it: {error}."
        raise RetriableError(problem) from error


def add_action(file: AddedFile, now: datetime, *, change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file; ``change`` unless its rows were there before."""
    add = {
        "path": encoded_path(file.path),
        "partitionValues": dict(file.partition_values),
        "size": file.size_bytes,
        "modificationTime": int(now.timestamp() * 1000),
        "dataChange": change,
        "stats": file.stats or json.dumps({"numRecords": file.rows}),
    }
    return {"add": add}


def mark_properties(mark: Mark, receipt: str) -> CommitProperties:
    """Return the commit properties that keep a batch's mark and receipt."""
    return CommitProperties(
        app_transactions=[Transaction(mark.application, mark.batch)],
        custom_metadata=_metadata(mark, receipt),
    )


def mark_metadata(mark: Mark, receipt: str) -> str:
    """Return what a commit through Spark keeps as ``userMetadata``, for ``find_receipt``."""
    return json.dumps(_metadata(mark, receipt))


def receipt_in(info: Mapping[str, Any]) -> str:
    """Return the receipt in a commit's ``commitInfo``; empty for none."""
    return str({**info, **_user_metadata(info)}.get(_RECEIPT, ""))


def _metadata(mark: Mark, receipt: str) -> dict[str, str]:
    return {_RECEIPT: receipt, _APPLICATION: mark.application}


def _user_metadata(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Read what ``mark_metadata`` wrote; other writers may keep any text there."""
    try:
        metadata = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def staging_folder(mark: Mark, folder: str = _DATA) -> str:
    """Return where an attempt stages files, relative to the table's folder."""
    # A connector may be called anything, such as what leads out of the table.
    return f"{folder}/{folder_name(mark.application)}/{mark.batch:012d}-{mark.epoch}"


def _added(
    path: Location, table: Location, partition_by: Sequence[str], *, stats: bool
) -> AddedFile:
    with path.open_input() as file:
        footer, size_bytes = pq.read_metadata(file), file.size()
    name = path.relative_to(table)
    folders = name.split("/")[-1 - len(partition_by) : -1]
    pairs = [folder.partition("=") for folder in folders]
    return AddedFile(
        name,
        size_bytes,
        footer.num_rows,
        {unquote(k): None if v == _NULL_FOLDER else unquote(v) for k, _, v in pairs},
        file_stats(footer) if stats else None,
    )
