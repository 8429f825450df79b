"""Topics: durable, replayable logs of records, stored as Delta tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from headrace.model import TopicRetention, is_topic_name, topic_matcher, topic_name_error
from headrace.sdk import DataLostError, Mark, RetriableError, Schema
from headrace.sdk.delta import AddedFile, add_files, find_receipt
from headrace.sdk.deltalog import create_table, flush_commits, load_table
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.mark import receipt_figures
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sparktypes import from_spark_json, to_spark_json
from headrace.topics.schemas import (
    SchemaHistory,
    check_kind,
    check_types,
    commit_definition,
    schemas_json,
)
from headrace.topics.segments import PACKED, Segment, rows_schema, segments_of, stored_schema
from headrace.topics.table_log import SCHEMAS, DeltaLog

RETENTION = "headrace.retention"
"""The application whose transaction version is the newest version with removed rows."""

_PROPERTIES = {
    # Upkeep cleans the log, since only upkeep knows which readers and segments need it.
    "delta.enableExpiredLogCleanup": "false",
    # Removed files leave the log soon; otherwise checkpoints grow with each file ever added.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
_ATTEMPTS = 10
_RELOAD_VERSIONS = 50
"""A loaded table does not use later checkpoints: reload it after this many versions."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The output of ``headrace topic describe``.

    Args:
        version: The newest version.
        oldest_version: The oldest version that can still be read.
        rows: How many rows the topic has; for a packed topic, packed rows.
        size_bytes: The size of its files.
        files: How many files it has.
        first_append: When the oldest version was committed.
        last_append: When the newest version was committed.
        packed: Whether each row contains a whole batch of one of many streams.
        schema: The rows' schema, as Spark's JSON.
        retention: How long the topic keeps its rows.
    """

    name: str
    path: str
    version: int
    oldest_version: int
    rows: int
    size_bytes: int
    files: int
    first_append: datetime | None
    last_append: datetime | None
    packed: bool
    schema: Mapping[str, object]
    retention: TopicRetention


class Appended(NamedTuple):
    """The result of an append: the topic's newest version, and whether it added the files."""

    version: int
    added: bool


class Topic:
    """One topic in a folder. Safe to use from many threads and processes."""

    def __init__(self, name: str, location: Location) -> None:
        self.name = name
        self.location = location
        self.log = DeltaLog(location)
        self.history = SchemaHistory(name, location, self.log)
        self._lock = threading.RLock()
        self._table: DeltaTable | None = None
        self._loaded = -1
        self._schema: tuple[int, Schema] | None = None
        self._fits: Schema | None = None
        self._segments: tuple[int, Sequence[Segment]] = (-1, ())

    def exists(self) -> bool:
        """Return whether the topic was created."""
        return self.log.has(0) or self.log.newest() >= 0

    def schema(self, version: int | None = None) -> Schema:
        """Return the schema of the topic's rows, now or at ``version``.

        If that version can no longer be loaded, returns the current schema, which also fits
        the old rows, since schemas only grow.
        """
        if version is not None and version >= 0:
            try:
                return schema_of(load_table(self.location, version))
            except DeltaError:
                pass
        with self._lock:
            return self._current_schema()

    def value_schema(self) -> Schema | None:
        """Return the schema of the records' values; None if there is none yet."""
        if not self.exists():
            return None
        with self._lock:
            field = self._current_schema().field("value")
        return None if field is None else field.schema

    def has_changed(self, after: int, version: int) -> bool:
        """Return whether the schema may have changed after ``after``, up to ``version``."""
        try:
            commits = (self.log.commit(v) for v in range(after + 1, version + 1))
            return any(commit.schema_json is not None for commit in commits)
        except FileNotFoundError:
            return True

    def prepare(self, schema: Schema, retention: TopicRetention | None = None) -> Schema:
        """Extend the table for rows of ``schema``; return the schema of its rows.

        Called for each batch, and cheap if nothing is new. The first call creates the table,
        with ``retention`` if given. New fields are added as optional fields, at any depth.
        Raises ConfigError if a field's new type is incompatible with the table's type, and for
        packed rows in a typed topic or the reverse.
        """
        with self._lock:
            if self._table is None and not self.exists():
                self._create(schema, retention)
            for _ in range(_ATTEMPTS):
                known = self._current_schema()
                if schema is self._fits or known == schema:
                    return known
                check_kind(self.name, known, schema)
                merged = evolve(known, schema)
                if merged == known:
                    self._fits = schema
                    return known
                check_types(self.name, known, merged)
                # False if another writer was first; then check again.
                table = self._refreshed()
                stored = stored_schema(merged)
                commit_definition(self.location, table, datetime.now(UTC), schema=stored)
            raise self._contended()

    def retention(self, default: TopicRetention | None = None) -> TopicRetention:
        """Return how long the topic keeps its rows.

        Limits that are not configured come from ``default``; a dead-letter topic has no default
        limits, so that letters are kept until a user handles them.
        """
        default = default or TopicRetention()
        with self._lock:
            if self._current_schema().field("cause") is not None:
                default = replace(default, age=None, size_bytes=None)
            properties = self._refreshed().metadata().configuration
        return TopicRetention.from_properties(properties, default)

    def configure(self, retention: TopicRetention, by: str = "") -> None:
        """Store how long the topic keeps its rows, and by which user (``by``) it was changed.

        Raises ConfigError if no rows would be kept.
        """
        retention.require_valid()
        with self._lock:
            for _ in range(_ATTEMPTS):
                properties = retention.to_properties()
                table = self._refreshed()
                now = datetime.now(UTC)
                if commit_definition(self.location, table, now, properties=properties, by=by):
                    return
        raise self._contended()

    def _contended(self) -> RetriableError:
        return RetriableError(f"Other writers keep changing topic {self.name}.")

    def receipt(self, mark: Mark) -> str | None:
        """Return the receipt of the batch if the topic has the batch, else None.

        The receipt is empty if the batch is older than the topic's retention: the mark outlives
        the commit with the receipt. Raises StaleEpochError if the topic has a newer batch of
        the same application.
        """
        if not self.exists():
            return None
        with self._lock:
            receipt = self._find_receipt(self._refreshed(), mark)
        if receipt is not None:
            # The attempt that committed the batch may have been killed before it was durable.
            flush_commits(self.location, mark)
        return receipt

    def append(
        self,
        files: Sequence[AddedFile],
        mark: Mark,
        receipt: str,
        now: datetime,
        *,
        schemas: Sequence[tuple[str, Schema]] = (),
        flushed: bool = False,
    ) -> Appended:
        """Add data files, already in the topic's folder, in one transaction.

        ``schemas`` are the schemas of the streams whose packed rows are in the files; the
        transaction lists the new ones, see ``SchemaHistory``. The files are made durable first,
        unless they are ``flushed``.

        Idempotent for the same attempt. Raises StaleEpochError if another attempt has committed
        the same batch, or another range with its number, or a newer batch: see ``Mark.wrote``.
        """
        new = self.history.unseen(schemas) if schemas else []
        more = {SCHEMAS: schemas_json(new)} if new else {}
        added = False
        with self._lock:
            for attempt in range(_ATTEMPTS):
                table = self._refreshed()
                if mark.wrote(self._held(table, mark)):
                    break
                try:
                    add_files(table, files, mark, receipt, now, details=more, flushed=flushed)
                    added = True
                    break
                except (RetriableError, StaleEpochError):
                    # Another writer has added a field, which the files may lack. Or the batch
                    # was added; the next check shows whether for this attempt, whose decision
                    # another worker may carry out.
                    if attempt == _ATTEMPTS - 1:
                        raise
            return Appended(int(self._refreshed().version()), added)

    def lost(self) -> int:
        """Return the newest version whose rows retention has removed; -1 for none."""
        if not self.exists():
            return -1
        with self._lock:
            version = self._refreshed().transaction_version(RETENTION)
        return -1 if version is None else version

    def first(self) -> int:
        """Return the oldest version that can be read; 0 for a topic that does not exist."""
        return max(self.lost() + 1, self.log.oldest(), 0)

    def segments(self) -> Sequence[Segment]:
        """Return the segments, oldest first."""
        with self._lock:
            table = self._refreshed()
            if self._segments[0] != table.version():
                self._segments = int(table.version()), segments_of(live_files(table))
            return self._segments[1]

    def describe(self) -> TopicDescription:
        """Return the topic's figures. Reads the log, not the data."""
        with self._lock:
            files = live_files(self._refreshed())
            schema = self._current_schema()
        oldest, newest = self.first(), self.log.newest()
        return TopicDescription(
            name=self.name,
            path=str(self.location),
            version=newest,
            oldest_version=oldest,
            rows=sum(file.rows for file in files),
            size_bytes=sum(file.size_bytes for file in files),
            files=len(files),
            first_append=self._time(oldest),
            last_append=self._time(newest),
            packed=schema.field(PACKED) is not None,
            schema=to_spark_json(schema),
            retention=self.retention(),
        )

    def _time(self, version: int) -> datetime | None:
        return self.log.commit(version).time if self.log.has(version) else None

    def _create(self, schema: Schema, retention: TopicRetention | None) -> None:
        spark_json = json.dumps(to_spark_json(stored_schema(schema)))
        # Another process may create the table at the same time, with the same result.
        create_table(
            self.location,
            DeltaSchema.from_json(spark_json),
            name=self.name,
            configuration=_PROPERTIES,
            properties=retention.to_properties() if retention else {},
        )

    def _held(self, table: DeltaTable, mark: Mark) -> str | None:
        """Find a receipt; raise DataLostError if the table no longer exists."""
        try:
            return self._find_receipt(table, mark)
        except DeltaError:
            if self.log.newest() >= int(table.version()):
                raise
            self._table = self._schema = self._fits = None  # the topic may be created again
            problem = (
                f"Topic {self.name} was deleted, or restored from an older copy, while it was "
                f"in use: {self.location} no longer has version {table.version()}."
            )
            fix = (
                "Restore the newest copy of the folder. Otherwise a restart of the connector "
                "creates the topic again, with new records only."
            )
            raise DataLostError(problem, fix=fix) from None

    def _find_receipt(self, table: DeltaTable, mark: Mark) -> str | None:
        if table.transaction_version(mark.application) != mark.batch:
            return find_receipt(table, mark)
        # Usually one of the newest commits.
        for commit in self.log.back_from(int(table.version())):
            if (commit.application, commit.batch) == (mark.application, mark.batch):
                return commit.receipt
        return ""

    def _current_schema(self) -> Schema:
        newest = self.log.newest(self._schema[0] if self._schema else -1)
        if self._schema is None or self.has_changed(self._schema[0], newest):
            table = self._refreshed()
            self._schema = int(table.version()), schema_of(table)
            self._fits = None
        else:
            self._schema = max(newest, self._schema[0]), self._schema[1]
        return self._schema[1]

    def _refreshed(self) -> DeltaTable:
        if self._table is None:
            return self._reload()
        version = int(self._table.version())
        newest = self.log.newest(version)
        if newest - self._loaded >= _RELOAD_VERSIONS:
            return self._reload()
        if newest != version:
            try:
                self._table.update_incremental()
            except DeltaError:  # the commits since then are no longer in the log
                return self._reload()
        return self._table

    def _reload(self) -> DeltaTable:
        try:
            self._table = load_table(self.location)
        except DeltaError:
            self.log.check()
            raise
        self._loaded = int(self._table.version())
        self.log.check()
        return self._table


def newest_figures(topic: Topic) -> dict[str, Any]:
    """Return the figures of the newest receipt; empty if the log has no receipt."""
    receipts = (commit.receipt for commit in topic.log.back_from(topic.log.newest()))
    return receipt_figures(next(filter(None, receipts), ""))


def live_files(table: DeltaTable) -> list[AddedFile]:
    """Return the files of a table, in no particular order."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    columns = (actions.column(name) for name in ("path", "size_bytes", "num_records"))
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [AddedFile(unquote(path), size, count or 0) for path, size, count in rows]


def schema_of(table: DeltaTable) -> Schema:
    """Return the schema of the rows in a topic's table."""
    return rows_schema(from_spark_json(json.loads(table.schema().to_json())))


_JOURNALS = "~captures"
"""The folder of captures' journals; "~" is not allowed in the name of a topic."""
JOURNAL = "~journal"


class Topics:
    """Every topic below one folder. Safe to use from many threads."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._topics: dict[str, Topic] = {}
        self._journals: dict[Location, Topic] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Topic:
        """Return the topic ``name``, which need not exist yet."""
        if not is_topic_name(name):
            raise topic_name_error(name, "topic")
        with self._lock:
            if name not in self._topics:
                self._topics[name] = Topic(name, self._folder / name)
            return self._topics[name]

    def find(self, name: str) -> Topic | None:
        """Return the topic ``name``; None if it does not exist or the name is invalid."""
        # Do not cache names of topics that do not exist.
        if not is_topic_name(name) or not Topic(name, self._folder / name).exists():
            return None
        return self.get(name)

    @property
    def staging(self) -> Location:
        """A folder beside the topics, for dividing batches that go to several topics."""
        return self._folder / "~divided"

    @property
    def upkeep_clock(self) -> Location:
        """The file in which upkeep stores the last trusted time."""
        return self._folder / "~upkeep" / "clock.json"

    def list(self) -> Sequence[Topic]:
        found = [entry.name for entry in self._folder.list() if entry.is_folder]
        names = sorted(name for name in found if is_topic_name(name))
        return [topic for name in names if (topic := self.get(name)).exists()]

    def journal(self, application: str) -> Topic:
        """Return the journal of a capture, which need not exist yet."""
        return Topic(JOURNAL, self._folder / _JOURNALS / quote(application, safe=""))

    def journals(self) -> Sequence[Topic]:
        """Return the captures' journals: tables beside the topics, without readers."""
        folders = (entry.location for entry in (self._folder / _JOURNALS).list())
        with self._lock:
            for folder in sorted(folders, key=str):
                if folder not in self._journals:
                    journal = Topic(JOURNAL, folder)
                    if journal.exists():
                        self._journals[folder] = journal
            return tuple(self._journals.values())

    def matching(self, pattern: str) -> Sequence[Topic]:
        """Return the existing topics whose whole name matches a regular expression."""
        matches = topic_matcher(pattern)
        return [topic for topic in self.list() if matches(topic.name)]
