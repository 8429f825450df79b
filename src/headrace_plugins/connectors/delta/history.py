"""A table's log as a source reads it: the versions, their times and their changes.

``deltalake`` returns the state at a version, with any checkpoint format. The later commits are
read one by one from their JSON, which the transaction log protocol defines
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md): only they tell which files are
new.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.sdk import ConfigError, DataLostError, SourceError
from headrace.sdk.deltalog import LOG, actions_in, commit_file, load_table
from headrace.sdk.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.sdk.location import FileInfo

CHANGE_FEED = "delta.enableChangeDataFeed"
_MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"
_COMMIT_TIMES = "delta.enableInCommitTimestamps"
_SINCE = "delta.inCommitTimestampEnablementVersion"
_CHUNK = 1024
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_NO_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|\Z")
_CUTS = re.compile(r"[?#]")  # where the path of a URL ends
_UUID_LENGTH = 20  # of the encoded UUID, after the folder in a relative vector's name
_SIDECARS = "_sidecars"


def file_at(table: Location, text: str) -> Location:
    """Return the location of a path in a log: a URL, or a percent-encoded path.

    Raises SourceError for a path that Delta's library would interpret differently.
    """
    if _URL.match(text) and not _CUTS.search(text):
        return Location.of(text)
    if _NO_PATH.match(text) or _CUTS.search(text):
        problem = f"The log of the table {table} contains {text!r}, which is not a path."
        raise SourceError(problem)
    path = unquote(text)
    return replace(table, path=path) if path.startswith("/") else table / path


def vector_at(table: Location, action: Mapping[str, Any]) -> Location | None:
    """Return the file of a deletion vector, or the folder of that file.

    Returns None if there is no vector, or an inline one. Raises SourceError as ``file_at``.
    """
    vector = action.get("deletionVector") or {}
    kind, text = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    if kind == "p" and (text.startswith("/") or _URL.match(text)):
        return file_at(table, text)
    if kind == "u" and ":" not in (folder := text[:-_UUID_LENGTH]):
        return table / folder  # not percent-encoded
    if kind in ("p", "u"):
        problem = (
            f"The log of the table {table} contains {text!r}, not a valid deletion vector."
        )
        raise SourceError(problem)
    return None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a version.

    Args:
        path: As in the log: percent-encoded, and usually relative to the table.
        rows: The number of rows; 0 if the statistics lack it.
        action: The action in the log; None for a file of a snapshot.
        vector: The action's deletion vector descriptor.
    """

    path: str
    size_bytes: int
    rows: int
    action: Mapping[str, Any] | None = None
    vector: Mapping[str, Any] | None = None

    def location(self, table: Location) -> Location:
        """Return the file's location; in a shallow clone it is in another table."""
        return file_at(table, self.path)

    def locations(self, table: Location) -> list[Location]:
        """Return all files to read: the file itself and that of its deletion vector."""
        vector = vector_at(table, {"deletionVector": self.vector})
        return [self.location(table), *([] if vector is None else [vector])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The changes of one version.

    Files that rewrite the same rows, such as those of OPTIMIZE, are excluded.

    Args:
        millis: Delta's commit time, in milliseconds since 1970.
        changes: The change data feed's own files, if the commit has any.
        metadata: The table's new metadata if it changed, as in the log.
        protocol: The table's new protocol if it changed, as in the log.
    """

    version: int
    millis: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    changes: tuple[DataFile, ...]
    metadata: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's definition at a version: ``metaData`` and ``protocol`` as in the log."""

    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @property
    def table(self) -> str:
        """Return the table's id; a table created later at the same location has another."""
        return str(self.metadata["id"])

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Return the columns, as Spark's JSON."""
        return list(json.loads(self.metadata["schemaString"])["fields"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}

    def after(self, commit: Commit) -> Definition:
        """Return the definition after a commit."""
        metadata = commit.metadata or self.metadata
        return Definition(metadata, commit.protocol or self.protocol)

    def lost_columns(self, later: Definition) -> list[str]:
        """Return a text for each column that a later definition has dropped or renamed."""
        mapped = all(each.properties.get(_MAPPING, "none") != "none" for each in (self, later))
        return list(_lost(self.fields, later.fields, "", mapped=mapped))


def _lost(old: Any, new: Any, path: str, *, mapped: bool) -> Iterator[str]:
    """Yield texts about dropped and renamed fields; schema evolution handles types."""
    if isinstance(old, list) and isinstance(new, list):

        def of(field: Mapping[str, Any]) -> str:
            physical = (field.get("metadata") or {}).get(_PHYSICAL) if mapped else None
            return str(physical or field["name"]).lower()

        there = {of(field): field for field in new}
        for field in old:
            where, found = f"{path}{field['name']}", there.get(of(field))
            if found is None:
                yield f"{where} was dropped"
            elif found["name"].lower() != field["name"].lower():
                yield f"{where} was renamed to {found['name']}"
            else:
                yield from _lost(field["type"], found["type"], f"{where}.", mapped=mapped)
    elif isinstance(old, dict) and isinstance(new, dict):
        for part in ("fields", "elementType", "keyType", "valueType"):
            if part in old and part in new:
                yield from _lost(old[part], new[part], path, mapped=mapped)


class TableHistory:
    """The versions of one table. Not thread-safe."""

    def __init__(
        self, location: Location, check: Callable[[Location], None] | None = None
    ) -> None:
        """Create the history of the table in a folder; its methods read the log.

        ``check`` raises an error for a file outside of the log that may not be read.
        """
        self.location = location
        self._check = check
        self._checked: set[str] = set()
        self._newest, self._mark = -1, ""
        self._current: Definition | None = None
        self._forget_all()

    def _forget_all(self) -> None:
        self._definitions: list[tuple[int, Definition]] = []
        """The definitions, each with the version that introduced it, complete from the first
        entry's version up to ``_defined``."""
        self._defined = -1
        self._times: tuple[int, list[int]] = -1, []
        """A first version, and the commit times of the versions from it on."""
        self._snapshot: tuple[int, pa.Table] | None = None

    @property
    def current(self) -> Definition:
        """Return the definition at the newest version seen by ``newest``."""
        if self._current is None:
            self.newest()
        assert self._current is not None
        return self._current

    def newest(self) -> int:
        """Return the newest version.

        This is cheap if there is no new version. Raises ConfigError if the table does not
        exist, or ``deltalake`` does not support a feature that readers of the table need.
        """
        if self._newest < 0 or self._mark_of(self._newest) != self._mark:
            # The first call, or the table was dropped and perhaps created again.
            self._forget_all()
            table = self._open()
            self._newest, self._current = int(table.version()), _definition(table)
        while commit_file(self.location, self._newest + 1).exists():
            self._current = self.current.after(self.commit(self._newest + 1))
            self._newest += 1
        self._mark = self._mark_of(self._newest)
        return self._newest

    def _mark_of(self, version: int) -> str:
        """Return a text that changes if the commit's file is replaced by another."""
        found = commit_file(self.location, version).info()
        # A new file may get the inode number of a removed one.
        return "" if found is None else f"{found.identity}/{found.mtime_ns}"

    def oldest(self) -> int:
        """Return the oldest version whose commit is still in the log."""
        return min(self._versions(), default=self._newest)

    def commit(self, version: int) -> Commit:
        """Return a commit. Raises DataLostError if the log no longer has it."""
        path = commit_file(self.location, version)
        found = path.info()
        if found is None:
            oldest = self.oldest()
            raise DataLostError(
                problem=f"Version {version} of the table {self.location} is gone from its log, "
                f"which begins with version {oldest}.",
                fix=f'Alter the offset to {{"version": {oldest - 1}}} to skip the lost '
                "versions, or reset the offsets to read the table from a snapshot; and raise "
                "the table's property delta.logRetentionDuration.",
            )
        return _commit(path, version, found.mtime_ns // 1_000_000, found.identity)

    def digest(self, version: int) -> str | None:
        """Return a digest that distinguishes a version from one with the same number.

        A table restored from a copy may have such a version. None if the version's commit is
        not in the log, such as after log cleanup.
        """
        path = commit_file(self.location, version)
        found = path.info()
        if found is None:
            return None
        try:
            # The prefix makes the digest of an offset invalid if its version is altered.
            return f"{version}-{_digest(path, found)}"
        except FileNotFoundError:  # the log was cleaned up meanwhile
            return None

    def definition(self, version: int) -> Definition:
        """Return the definition at a version. Raises DataLostError if it is unavailable."""
        if version == self._newest:
            return self.current
        if not self._definitions or version < self._definitions[0][0]:
            self._definitions = [(version, _definition(self._open(version)))]
            self._defined = version
        while self._defined < version:
            last = self._definitions[-1][1]
            now = last.after(self.commit(self._defined + 1))
            self._defined += 1
            if now != last:
                self._definitions.append((self._defined, now))
        place = bisect_right(self._definitions, version, key=lambda each: each[0])
        return self._definitions[place - 1][1]

    def snapshot_size(self, version: int) -> int:
        """Return the number of files at a version. Raises DataLostError."""
        return int(self._files_at(version).num_rows)

    def snapshot_files(self, version: int, start: int, stop: int) -> Iterator[DataFile]:
        """Yield files of a version, ordered by time and path, as in Delta's source."""
        files = self._files_at(version)
        for first in range(start, stop, _CHUNK):
            rows = files.slice(first, min(_CHUNK, stop - first)).to_pylist()
            for row in rows:
                yield DataFile(row["path"], row["size_bytes"], row["num_records"] or 0)

    def _files_at(self, version: int) -> pa.Table:
        if self._snapshot is None or self._snapshot[0] != version:
            files = pa.table(self._open(version).get_add_actions())
            names = ["path", "size_bytes", "num_records", "modification_time"]
            order = [("modification_time", "ascending"), ("path", "ascending")]
            self._snapshot = version, files.select(names).sort_by(order)
        return self._snapshot[1]

    def forget_snapshot(self) -> None:
        """Free the cached snapshot after it was read."""
        self._snapshot = None

    def version_at(self, millis: int) -> int:
        """Return the newest version that was committed at or before a time.

        Returns the version before ``oldest`` if there is none.
        """
        first = self.oldest()
        if first != self._times[0]:
            self._times = first, []
        times = self._times[1]
        for version in range(first + len(times), self._newest + 1):
            # As in Delta: each version is later than the one before it.
            after = times[-1] + 1 if times else 0
            times.append(max(after, self.millis(version) or 0))
        return first - 1 + bisect_right(times, millis)

    def millis(self, version: int) -> int | None:
        """Return the commit time of a version; None if its commit is not in the log."""
        properties = self.current.properties
        found = commit_file(self.location, version).info()
        if found is None:
            return None
        in_commit = properties.get(_COMMIT_TIMES) == "true"
        if in_commit and version >= int(properties.get(_SINCE, 0)):
            return self.commit(version).millis
        return found.mtime_ns // 1_000_000

    def _versions(self) -> Iterator[int]:
        names = (entry.name for entry in (self.location / LOG).list())
        stems = (name[:-5] for name in names if name.endswith(".json"))
        return (int(stem) for stem in stems if stem.isdigit())

    def _check_sidecars(self) -> None:
        """Check the sidecar files of checkpoints before anything reads them."""
        if self._check is None:
            return
        for entry in (self.location / LOG).list():
            if ".checkpoint." in entry.name and entry.name not in self._checked:
                for path in _sidecars(entry.location):
                    if "/" in path or ":" in path:
                        self._check(file_at(self.location / LOG / _SIDECARS, path))
                self._checked.add(entry.name)

    def _open(self, version: int | None = None) -> DeltaTable:
        self._check_sidecars()
        try:
            return load_table(self.location, version)
        except DeltaError as error:
            if version is None and isinstance(error, TableNotFoundError):
                raise ConfigError(
                    problem=f"{self.location} is not a Delta table.",
                    fix="Fix the path, or create the table.",
                    field="path",
                ) from error
            if "not supported" in str(error):
                raise ConfigError(
                    problem=f"The table {self.location} cannot be read: {error}.",
                    fix="Drop the feature from the table (ALTER TABLE ... DROP FEATURE).",
                    field="path",
                ) from error
            if version is None:
                problem = f"The log of the table {self.location} is damaged: {error}."
                raise DataLostError(problem, fix="Restore it from a backup.") from error
            raise DataLostError(
                problem=f"The table {self.location} can no longer be read at version "
                f"{version}: {error}.",
                fix="Choose a newer version, or reset the offsets to read the table from a "
                "newer snapshot; and raise the table's property delta.logRetentionDuration.",
            ) from error


def _sidecars(checkpoint: Location) -> Iterator[str]:
    """Yield the paths of a checkpoint's sidecar files; none for an incomplete checkpoint."""
    try:
        if checkpoint.name.endswith(".json"):
            for action in actions_in(checkpoint):
                if "sidecar" in action:
                    yield str(action["sidecar"]["path"])
        elif checkpoint.name.endswith(".parquet"):
            with checkpoint.open_input() as file:
                found = pq.ParquetFile(file)
                if "sidecar" in found.schema_arrow.names:
                    rows = found.read(columns=["sidecar.path"])["sidecar"].to_pylist()
                    yield from (str(row["path"]) for row in rows if row and row["path"])
    except (FileNotFoundError, ValueError):  # reported when the checkpoint is used
        return


def _definition(table: DeltaTable) -> Definition:
    metadata, protocol = table.metadata(), table.protocol()
    features = {
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    return Definition(
        {
            "id": str(metadata.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
        },
        {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{name: list(found) for name, found in features.items() if found is not None},
        },
    )


@lru_cache(maxsize=1024)
def _digest(path: Location, _found: FileInfo) -> str:
    """Return a digest of a commit; its times and file names make its content unique."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=1024)
def _commit(path: Location, version: int, written_millis: int, _identity: str) -> Commit:
    files: dict[str, list[DataFile]] = {"add": [], "remove": [], "cdc": []}
    facts: dict[str, Any] = {"millis": written_millis, "metadata": None, "protocol": None}
    try:
        actions = list(actions_in(path))
    except ValueError:
        actions = []
    if not actions:
        raise DataLostError(
            problem=f"{path} is empty or truncated, for example by a power failure.",
            fix="Restore it from a backup; or delete it if there is no newer version.",
        )
    for action in actions:
        ((kind, body),) = action.items()
        if kind in files and (kind == "cdc" or body["dataChange"]):
            files[kind].append(_file(body, keep=kind == "add"))
        elif kind == "commitInfo":
            facts["millis"] = int(body.get("inCommitTimestamp") or written_millis)
        elif kind == "metaData":
            facts["metadata"] = body
        elif kind == "protocol":
            facts["protocol"] = body
    return Commit(
        version=version,
        added=tuple(files["add"]),
        removed=tuple(files["remove"]),
        changes=tuple(files["cdc"]),
        **facts,
    )


def _file(body: Mapping[str, Any], *, keep: bool) -> DataFile:
    rows = json.loads(body.get("stats") or "{}").get("numRecords") or 0
    # Statistics are most of an action's size, and reading whole files does not need them.
    action = {name: body[name] for name in body if name not in ("stats", "tags")}
    return DataFile(
        body["path"],
        body.get("size") or 0,
        rows,
        action if keep else None,
        body.get("deletionVector"),
    )
