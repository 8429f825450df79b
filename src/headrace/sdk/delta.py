"""Commits Parquet files to Delta tables, each batch exactly once, with the files' statistics.

Spark writes the files and ``deltalake`` commits them, because a commit through Spark
costs about a second more and a batch is often smaller than that. The statistics are in the
format of the protocol's "Per-file Statistics"
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md), with which readers skip files.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from headrace.sdk.deltalog import CommitConflictError, commit, encoded_path, table_folder
from headrace.sdk.errors import RetriableError, StaleEpochError
from headrace.sdk.folders import NULL_FOLDER, folder_name, written_parts
from headrace.sdk.location import Location, sync

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk.mark import Mark

QUIET = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""No checkpoint at commit: maintenance is a separate task, so no batch waits for it."""
_RECEIPT = "headrace.receipt"
_APPLICATION = "headrace.application"
_DATA = "data"
_NEAR = 20
_TEXT_CHARS = 32  # the string prefix that Delta's own writers store
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file of a Delta table.

    Args:
        path: The path relative to the table's folder.
        stats: The statistics as Delta's JSON; None for only the number of rows.
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
    """Write ``frame`` below the folder ``table``, in this attempt's own folder.

    The epoch is part of the folder name, so an old owner that still writes cannot change the
    files of the new owner. Returns the files in partition order, without empty files. Readers
    that list files skip a ``folder`` whose name begins with "_". For the columns of
    ``partition_by``, only booleans, integers, decimals, dates and strings are formatted as
    Delta requires. With ``stats``, each file's statistics are taken from its footer.
    """
    to = table / staging_folder(mark, folder)
    # The file _SUCCESS would remain in the table forever.
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
    """Return the files that Spark has staged in an attempt, like ``stage_parquet``."""
    staged = table / staging_folder(mark, folder)
    found = []
    for entry in staged.walk():
        if entry.name.startswith(".") and entry.name.endswith(".crc"):
            # Hadoop's checksums beside the files: a checksum torn by a power failure would
            # make Spark reject an intact file.
            entry.location.delete()
        elif entry.name.startswith("part-") and entry.name.endswith(".parquet"):
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
    """Return the files with these names that an attempt has staged with ``write_part``.

    All other files in its folder are deleted. With ``stats``, each file has statistics.
    """
    found = written_parts(table / staging_folder(mark, folder), names)
    return [file for path in found if (file := _added(path, table, (), stats=stats)).rows]


def discard_staged(table: Location, mark: Mark, *, folder: str = _DATA) -> None:
    """Remove the staged files of an attempt; do nothing if there are none."""
    (table / staging_folder(mark, folder)).delete_folder()


def discard_other_attempts(table: Location, mark: Mark, *, folder: str = _DATA) -> None:
    """Remove the staged files of older attempts at the same batch, such as crashed ones.

    Called after the table has accepted this attempt's files: the files of the others are then
    in no version of it. A newer owner may still be running; its files stay.
    """
    for other in (table / staging_folder(mark, folder)).parent.list():
        batch, _, epoch = other.name.rpartition("-")
        is_attempt = batch == f"{mark.batch:012d}" and epoch.isdecimal()
        if is_attempt and int(epoch) < mark.epoch:
            other.location.delete_folder()


def newest_change(folder: Location) -> float:
    """Return the time of the last write in a folder: a large attempt may take days."""
    infos = [folder.info(), *(entry.info() for entry in folder.walk())]
    return max((found.mtime_ns for found in infos if found is not None), default=0) / 1e9


def find_receipt(table: DeltaTable, mark: Mark) -> str | None:
    """Return the receipt of a batch that the table already contains, else None.

    The receipt is empty if the table's log no longer has it. Load the table again before the
    call. Raises StaleEpochError: the table contains a newer batch of the same application.
    """
    held = table.transaction_version(mark.application)
    if held is None or held < mark.batch:
        return None
    if held > mark.batch:
        raise mark.newer(held)
    for most in (_NEAR, None):  # the receipt is usually recent, and a log may be long
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

    The files are flushed first unless ``flushed`` is set. ``details`` are further entries of
    the commit info, ``removed`` are actions that remove files from the table, ``transactions``
    are further transaction numbers by application, and ``watched`` are applications that must
    not have committed since the table was read.

    Guarantee 2: a second transaction of an application that did not see the first is
    rejected. Raises StaleEpochError if the application is the mark's, and RetriableError if it
    is another one of ``transactions`` or ``watched``, or if another writer has changed the
    table's definition or removed one of the files in the meantime.
    """
    folder = table_folder(table)
    if not flushed:
        # Guarantee 1: a commit never names files that are not on disk.
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
    """Return the action that adds a file; set ``change`` unless the rows already existed."""
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
    """Return the commit properties that store a batch's mark and receipt."""
    return CommitProperties(
        app_transactions=[Transaction(mark.application, mark.batch)],
        custom_metadata=_metadata(mark, receipt),
    )


def mark_metadata(mark: Mark, receipt: str) -> str:
    """Return the ``userMetadata`` for a commit through Spark, for ``find_receipt``."""
    return json.dumps(_metadata(mark, receipt))


def receipt_in(info: Mapping[str, Any]) -> str:
    """Return the receipt in a commit's ``commitInfo``; empty if there is none."""
    return str({**info, **_user_metadata(info)}.get(_RECEIPT, ""))


def _metadata(mark: Mark, receipt: str) -> dict[str, str]:
    return {_RECEIPT: receipt, _APPLICATION: mark.application}


def _user_metadata(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the output of ``mark_metadata``; other writers may store any text there."""
    try:
        metadata = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def staging_folder(mark: Mark, folder: str = _DATA) -> str:
    """Return the staging folder of an attempt, relative to the table's folder."""
    # A connector may have any name, including a path out of the table.
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
        {unquote(k): None if v == NULL_FOLDER else unquote(v) for k, _, v in pairs},
        file_stats(footer) if stats else None,
    )


def file_stats(footer: pq.FileMetaData) -> str:
    """Return the statistics of one file as Delta's JSON.

    They contain the number of rows and, for top-level columns of primitive types, the number of
    nulls, the smallest and the largest value. Bounds may be wider than the values, never
    narrower.
    """
    lows: dict[str, list[Any]] = defaultdict(list)
    highs: dict[str, list[Any]] = defaultdict(list)
    nulls: dict[str, int] = defaultdict(int)
    blind: set[str] = set()
    for name, chunk in _chunks(footer):
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            blind.add(name)
            continue
        nulls[name] += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        low, high = _bounds(stats)
        lows[name].append(low)
        highs[name].append(high)
    low = {n: min(v) for n, v in lows.items() if None not in v and n not in blind}
    high = {n: max(v) for n, v in highs.items() if None not in v and n not in blind}
    counts = {name: count for name, count in nulls.items() if name not in blind}
    # Decimals are written with all digits, which a float might lose.
    minimum, maximum = (
        ", ".join(f"{json.dumps(name)}: {_text(value)}" for name, value in bounds.items())
        for bounds in (low, high)
    )
    return (
        f'{{"numRecords": {footer.num_rows}, "minValues": {{{minimum}}}, '
        f'"maxValues": {{{maximum}}}, "nullCount": {json.dumps(counts)}}}'
    )


def _text(value: object) -> str:
    """Return a bound as JSON."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            moment = value.astimezone(UTC).replace(tzinfo=None) if zone else value
            # Readers accept both; Delta's own writers use milliseconds.
            unit = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return json.dumps(moment.isoformat(timespec=unit) + zone)
        case date():
            return json.dumps(value.isoformat())
        case _:
            return json.dumps(value)


def _chunks(footer: pq.FileMetaData) -> Iterator[tuple[str, pq.ColumnChunkMetaData]]:
    # A leaf inside a struct has a dotted path, which a column with a dot could also have.
    plain = {
        field.name
        for field in footer.schema.to_arrow_schema()
        if not pa.types.is_nested(field.type) and "." not in field.name
    }
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            chunk = footer.row_group(group).column(column)
            if chunk.path_in_schema in plain:
                yield chunk.path_in_schema, chunk


def _bounds(stats: pq.Statistics) -> tuple[Any, Any]:
    """Return the smallest and the largest value; None if unknown."""
    if not stats.has_min_max:
        return None, None
    try:
        low, high = stats.min, stats.max
    except OverflowError:  # Python has no years before 1 and after 9999
        return None, None
    return _low(low), _high(high)


def _low(value: object) -> Any:
    match value:
        case str():
            return value[:_TEXT_CHARS]
        case datetime():
            return value - timedelta(microseconds=value.microsecond % 1000)
        case _:
            return _bound(value)


def _high(value: object) -> Any:
    match value:
        case str():
            # A truncated string is too small for an upper bound.
            return value if len(value) <= _TEXT_CHARS else None
        case datetime():
            below = timedelta(microseconds=value.microsecond % 1000)
            try:
                return value - below + _MILLISECOND if below else value
            except OverflowError:  # the last millisecond of the year 9999 has no next one
                return value
        case _:
            return _bound(value)


def _bound(value: object) -> Any:
    match value:
        case bool() | None:
            return None
        case float():
            return value if math.isfinite(value) else None
        case int() | Decimal() | date():
            return value
        case _:
            return None
