"""Target folders of sinks, their names, and the Parquet files that executors write there."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import uuid
from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sdk.config import invalid
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.errors import ConfigError, SinkError
from headrace.sdk.sink import Refusal
from headrace.sdk.sqltext import literal
from headrace.sdk.storage import naming

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.location import Location


_WRONG_PATH = {errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
"""Permanent errors: a folder with this path is not possible."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in the name of a partition's folder, as in Hive, Spark and Delta."""
_NAME_CHARS = 120
_PLACEHOLDER = re.compile(r"\$\{[^}:]*\}")
"""A placeholder that a sink fills in; with a colon it would be a provider reference."""


def folder_name(text: str) -> str:
    """Return a unique, safe folder name for a text: a single folder, never a path.

    The name is unchanged by URL encoding, which Delta's logs use for file paths, and by
    ``deltalake``, which escapes a tilde and then does not find the file.
    """
    name = quote(text, safe="").replace("~", "%7E").replace(".", "%2E").replace("%", "+")
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_CHARS]}++{digest}"


def fixed_folder(place: Location, placeholder: str) -> Location:
    """Return the folder above the first part of a path that contains ``placeholder``.

    Without a placeholder it is the path itself.
    """
    before, found, _ = place.path.partition(placeholder)
    return replace(place, path=before + "x").parent if found else place


def require_writable(folder: Location) -> None:
    """Create the folder, and check that it is writable.

    Raises ConfigError: a folder is not possible at this path. Raises SinkError: the folder is
    not writable now, for example because it is full or read-only, or because permission is
    missing. A task that is restarted later may succeed.
    """
    try:
        folder.make_folder()
        probe = folder / ".headrace-probe"
        probe.put("")
        probe.delete()
    except OSError as error:
        raised = ConfigError if error.errno in _WRONG_PATH else SinkError
        raise raised(
            problem=f"{folder} cannot be written to: {error.strerror}.",
            fix="Make room there, give the worker's user the right to write there, or choose "
            "another path.",
            field="path",
        ) from error


_LITTLE_BYTES = 1024**3


def folder_findings(folder: Location) -> Iterator[Finding]:
    """Yield the findings of ``headrace doctor`` for a target folder: permission and space.

    Nothing is created or written, so a full or read-only file system may be detected only by
    the first batch.
    """
    there = folder
    while not there.exists() and there.parent != there:
        there = there.parent
    requirement = f"right to write to {folder}"
    if not there.is_folder():
        yield Finding(
            requirement, Verdict.FAILED, f"{there} is not a folder", "Choose another path."
        )
        return
    missing = "" if there == folder else f"created by the first batch, below {there}"
    if there.is_local and not os.access(there.local, os.W_OK | os.X_OK):
        fix = f"Give the worker's user the right: chown or chmod u+rwx {there}."
        yield Finding(requirement, Verdict.FAILED, f"{there} may not be written to", fix)
        return
    yield Finding(requirement, Verdict.OK, missing)
    free = there.free_bytes()
    if free is not None:
        low = free < _LITTLE_BYTES
        yield Finding(
            f"free space at {there}",
            Verdict.WARNING if low else Verdict.OK,
            f"{free / _LITTLE_BYTES:.1f} GiB",
            "Make room: a batch is staged before it becomes visible." if low else "",
        )


_SAMPLED_ROWS = 10_000
_GROUP_BYTES = 128 * 1024 * 1024
"""The size of one row group in memory."""


def write_part(
    folder: Location, compression: str, number: int, rows: Iterator[pa.RecordBatch]
) -> str | None:
    """Write the rows of a part as one file in the folder; return its name.

    Return None if there are no rows. A retried part gets another file name, because an attempt
    that Spark has abandoned may still write, and may end after the batch was committed.
    """
    first = next(rows, None)
    if first is None:
        return None
    folder.make_folder()
    # Spark's files have other names: a straight copy's abandoned attempt may still write when
    # Spark writes the same batch to the folder.
    name = f"rows-{number:05d}-{uuid.uuid4().hex}.{compression}.parquet"
    # Errors of the source do not get the name of this file.
    named = partial(naming, to := folder / name)
    repeating = _repeating(first)
    with ExitStack() as opened:
        with named():
            file = to.open_output()
            opened.callback(named()(file.close))
            writer = pq.ParquetWriter(
                file, first.schema, compression=compression, use_dictionary=repeating
            )
            opened.callback(named()(writer.close))
        for group in _groups(first, rows):
            with named():
                writer.write_table(group)
    return name


def _groups(first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in row groups."""
    group, size = [first], first.nbytes
    for batch in rows:
        if size + batch.nbytes > _GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group, size = [], 0
        group.append(batch)
        size += batch.nbytes
    yield pa.Table.from_batches(group)


def written_parts(folder: Location, names: Sequence[str]) -> list[Location]:
    """Return the files with these names that are in the folder, in the order of the names.

    All other files are deleted: abandoned attempts wrote them.
    """
    found = {entry.name: entry.location for entry in folder.list()}
    for name in found.keys() - set(names):
        found[name].delete()
    return [found[name] for name in names if name in found]


def _repeating(rows: pa.RecordBatch) -> list[str] | bool:
    """Return the columns whose values repeat; a dictionary for others costs time and space."""
    some = rows.slice(0, _SAMPLED_ROWS)
    if any(pa.types.is_nested(each) for each in rows.schema.types):
        return True  # nested columns have names of their own
    half = some.num_rows / 2
    names = zip(some.schema.names, some.columns, strict=True)
    return [name for name, values in names if pc.count_distinct(values).as_py() <= half]


def check_placeholders(name: str, path: str, known: Sequence[str]) -> None:
    """Raise ConfigError if a path has an unknown placeholder, such as ``${topc}``.

    Args:
        name: The configuration key of the path.
        path: The path.
        known: The allowed placeholders, such as ``${topic}``.
    """
    for found in _PLACEHOLDER.findall(path):
        if found not in known:
            close = get_close_matches(found, known, n=1)
            fix = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(known)}."
            raise invalid(name, path, f"Unknown placeholder {found}", fix=fix)


_MOST_BYTES = 255
"""The longest name of a folder on Linux's file systems."""
_ESCAPED = "[\\x01-\\x1F\\x7F\"#%'*/:=?\\\\{\\[\\]^]"
"""What Spark writes as three characters: a percent sign and two digits."""


def unstorable_value(column: str, sql: str, *, encoded: bool = False) -> Refusal:
    """Return the condition for values of a string that cannot name a partition's folder.

    Args:
        column: The partition column.
        sql: Its value.
        encoded: Whether the writer percent-encodes names as in URLs, as deltalake does, and
            not only what Spark does.
    """
    if encoded:
        name = f"replace(replace(url_encode({sql}), '+', '%20'), '*', '%2A')"
        most = _MOST_BYTES - len(f"{quote(column)}=")
    else:
        name = f"regexp_replace({sql}, {literal(_ESCAPED)}, '%00')"
        most = _MOST_BYTES - len(re.sub(_ESCAPED, "%00", column).encode()) - 1
    unstorable = (
        f"octet_length({name}) > {most} OR contains({sql}, char(0)) "
        f"OR {sql} = {literal(NULL_FOLDER)}"
    )
    return Refusal(
        condition=f"coalesce({unstorable}, false)",
        problem="The value of a partition column cannot be the name of a folder, as it is "
        f"longer than {_MOST_BYTES} bytes, contains a NUL character, or is the name for null, "
        f"{NULL_FOLDER}.",
        fix="Change the values with a transform, or set another partition.by.",
        field=column,
    )
