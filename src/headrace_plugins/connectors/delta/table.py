"""The target table: how to create, open, widen and maintain it, and its data files.

The compaction of small files is not done by ``deltalake``, which accepts two concurrent
compactions planned on the same version: the second adds the rows of the same files again. Here
the commit fails if another writer has removed one of the files, as Delta's protocol requires.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.sdk import ConfigError, HeadraceError, Mark, RetriableError, SinkError, deltalog
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.config import invalid
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.delta import (
    QUIET,
    AddedFile,
    add_action,
    file_stats,
    newest_change,
    staging_folder,
)
from headrace.sdk.deltalog import (
    LOG,
    CommitConflictError,
    actions_in,
    commit,
    create_checkpoint,
    flush_commits,
    load_table,
    misses_commit,
    newest_commit,
)
from headrace.sdk.folders import write_part
from headrace.sdk.location import Location, sync
from headrace.sdk.schema import Schema
from headrace.sdk.sink import run_in_workers
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta.columns import required
from headrace_plugins.connectors.delta.history import file_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import Schema
    from headrace_plugins.connectors.delta.columns import Fit
    from headrace_plugins.connectors.delta.settings import DeltaSettings


_TARGET_BYTES = 100 * 1024 * 1024
"""The target size of a compacted file, unless the table's property sets another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Compacts small files of a table; runs on a worker.

    Args:
        application: The sink task in marks; files are written to the task's staging folder, so
            the task's cleanup also deletes what a crash leaves.
    """

    table: Location
    application: str

    def run(self, table: DeltaTable) -> tuple[int, int]:
        """Compact files as of a loaded version; return the numbers of removed and added files.

        Raises SinkError if another writer has removed one of the files meanwhile.
        """
        groups = list(self._groups(table))
        if not groups:
            return 0, 0
        schema = Schema.struct(schemas_of(fields_of(table)))
        # Not the number of any batch. Uncommitted files are deleted like old attempts.
        folder = staging_folder(Mark(self.application, time.time_ns() // 1_000_000, 0))
        joined = (self._joined(group, schema, folder) for group in groups)
        added = [file for file in joined if file is not None]
        now = datetime.now(UTC)
        removed = [
            file.removal(int(now.timestamp() * 1000), change=False)
            for group in groups
            for file in group
        ]
        sync((self.table / file.path for file in added), up_to=self.table)
        try:
            commit(
                self.table,
                int(table.version()),
                [*removed, *(add_action(file, now, change=False) for file in added)],
                operation="OPTIMIZE",
                transactions={},
                details={},
                now=now,
            )
        except CommitConflictError as error:
            for file in added:
                (self.table / file.path).delete()
            problem = f"Another writer removed files during their compaction: {error}."
            raise SinkError(problem) from error
        return len(removed), len(added)

    def _groups(self, table: DeltaTable) -> Iterator[Sequence[TableFile]]:
        """Yield groups of two or more small files of one partition to compact."""
        target = int(properties_of(table).get("delta.targetFileSize") or _TARGET_BYTES)
        open_: dict[tuple[tuple[str, str | None], ...], list[TableFile]] = {}
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        for file in (TableFile(action) for action in actions):
            if file.size_bytes >= target or not file.is_inside(self.table):
                continue
            group = open_.setdefault(tuple(sorted(file.values.items())), [])
            if group and sum(each.size_bytes for each in group) + file.size_bytes > target:
                yield from [group] if len(group) > 1 else []
                group = open_[tuple(sorted(file.values.items()))] = []
            group.append(file)
        yield from (group for group in open_.values() if len(group) > 1)

    def _joined(
        self, group: Sequence[TableFile], schema: Schema, folder: str
    ) -> AddedFile | None:
        """Write the rows of a group to one file; None if there are no rows."""
        values: Mapping[str, str | None] = group[0].values
        types = pa.schema([each for each in to_arrow(schema) if each.name not in values])
        name = write_part(self.table / folder, "zstd", 0, self._rows(group, types))
        if name is None:
            return None
        return added_file(self.table / folder / name, self.table, values)

    def _rows(self, group: Sequence[TableFile], types: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in group:
            with file.opened(self.table) as parquet:
                own = [name for name in types.names if name in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(columns=own):
                    yield conform(batch, types)


log = structlog.get_logger(__name__)

_DATA = "data"
_GRACE_SECONDS = 7 * 24 * 3600  # Delta's default retention of unreferenced files
_ATTEMPT = re.compile(r"\d{12,}-\d+")


class Vacuum(Enum):
    """The tables in which replaced files are deleted."""

    CREATED = "created"
    ALWAYS = "always"
    NEVER = "never"


class Upkeep:
    """Decides after each commit of a task whether the table needs maintenance."""

    def __init__(self, interval_commits: int, vacuum: Vacuum) -> None:
        """Maintain a table when its version passes a multiple of the interval; 0: never."""
        self._interval = interval_commits
        self._vacuum = vacuum
        self._seen: dict[Location, int] = {}

    def after_commit(self, spark: SparkSession, table: Location, application: str) -> None:
        """Maintain the table if it is due. Errors are logged; the next run tries again."""
        version = max(newest_commit(table), 0)
        before = self._seen.get(table, version - 1)
        self._seen[table] = version
        if not self._interval or before // self._interval == version // self._interval:
            return
        work = Maintenance(table=table, application=application, vacuum=self._vacuum)
        try:
            run_in_workers(spark, [work.run])
        except (HeadraceError, PySparkException, Py4JError) as error:
            cause = str(error).partition("\n")[0]  # Spark appends Java's stack
            log.warning("delta.upkeep_failed", table=str(table), error=cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """One maintenance run of a table; pickled to a worker.

    A table's folder may contain files that are not part of the table: other tables, notes, and
    files that other tasks and programs are about to commit. So only files that the table's log
    lists as removed (as in Delta's VACUUM LITE), and files that this application staged itself,
    are deleted.
    """

    table: Location
    application: str
    """The sink task in marks, which owns the files that it staged."""
    vacuum: Vacuum

    def run(self) -> None:
        """Compact small files, write a checkpoint, and delete files that no version needs.

        Tables that ``deltalake`` may not rewrite are not compacted. Replaced files are deleted
        after the table's ``delta.deletedFileRetentionDuration``, leftovers of this
        application's crashed attempts after seven days.

        Raises:
            SinkError: A step failed, for example because another writer changed the same files.
        """
        try:
            self._optimize()
        except DeltaError as error:
            problem = f"The maintenance of {self.table} failed: {error}"
            raise SinkError(problem) from error
        self._remove_leftovers()

    def _optimize(self) -> None:
        if merge_obstacle(table := load_table(self.table)) is None:
            before = int(table.version())
            compaction = Compaction(table=self.table, application=self.application)
            removed, added = compaction.run(table)
            # Flush before the replaced files may be deleted.
            flush_commits(self.table, None, before)
            log.info("delta.compacted", table=str(self.table), removed=removed, added=added)
        # Vacuum before the checkpoint, which drops the entries of the files to delete.
        if self._may_vacuum(table := load_table(self.table)):
            table.vacuum(dry_run=False, full=False)
        create_checkpoint(load_table(self.table))
        table = load_table(self.table)
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
        # No version contains files of the hidden folder.
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
    """Yield the staging folders, below ``data``, of files in any readable version of the table.

    Each file of such a version is in the current version, or in an add or remove action of
    the commits that are still in the log.
    """
    actions = load_table(table).get_add_actions(flatten=True)
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


HIDDEN = "_headrace"
"""The folder in a table for data outside of the table: staged rows and ``created.json``."""
_CREATED = "created.json"
_DECIMAL = re.compile(r"decimal\((\d+),\s*-?\d+\)")
_EXACT_DIGITS = 15  # decimal digits that a double represents exactly
WIDENING = "delta.enableTypeWidening"
# Features that do not affect a writer that only adds files. _obstacles checks the table itself
# for what some of them enable: constraints, generated columns, column mapping.
_HARMLESS = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "vacuumProtocolCheck",
}
# Properties that do not affect an append, but a merge.
_PLAIN_PROPERTIES = ("delta.enableChangeDataFeed", "delta.enableDeletionVectors")
_FEATURE_PROPERTIES = (
    "delta.columnMapping.",
    "delta.constraints.",
    "delta.enable",
    "delta.feature.",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
)
OWN_VALUES = ("delta.generationExpression", "delta.identity.", "CURRENT_DEFAULT")
"""Prefixes of the metadata of columns that get a value if none is written."""
_HIGHEST_IDENTITY = "delta.identity.highWaterMark"
_BINDING_METADATA = ("delta.invariants", *OWN_VALUES)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_PARTITION_TYPES = {"boolean", "byte", "short", "integer", "long", "string", "date"}


def check_folder(name: str, value: object) -> None:
    """Raise ConfigError for a path that cannot be a table's folder: the validator of path."""
    if not value:
        raise invalid(name, value, "Must be a folder", fix="Set the path of a folder.")
    if _ESCAPE.search(Location.of(str(value), field=name).path):
        problem = "Must not contain a percent sign before two hexadecimal digits"
        raise invalid(name, value, problem, fix="Choose another folder: deltalake decodes it.")


def open_table(path: Location) -> DeltaTable | None:
    """Load and return the table in a folder; None if it does not exist.

    Raises SinkError if the table's log is damaged.
    """
    try:
        return load_table(path) if DeltaTable.is_deltatable(str(path)) else None
    except DeltaError as error:
        if not misses_commit(error):
            raise
        raise SinkError(
            problem=f"The log of the table {path} lacks a commit, or its first one is empty.",
            fix="Try again; if it remains, restore the file in _delta_log from a backup.",
        ) from error


def check_partition_columns(fit: Fit, partition_by: Sequence[str]) -> None:
    """Raise ConfigError for a missing column, or a type that cannot partition a table."""
    kinds = {f["name"]: f["type"] for f in fit.fields}
    for name in partition_by:
        kind = kinds.get(name)
        if kind not in _PARTITION_TYPES and not str(kind).startswith("decimal"):
            raise ConfigError(
                problem=f"The records have no column {name} that can partition a table.",
                fix="Name a column of strings, integers, decimals, booleans or dates.",
                field="partition.by",
            )


def create_table(
    path: Location, fit: Fit, *, partition_by: Sequence[str], properties: Mapping[str, str]
) -> DeltaTable:
    """Create the table, or open it if another task has created it meanwhile.

    Raises ConfigError if Delta refuses a column or a property.
    """
    try:
        table = deltalog.create_table(
            path,
            DeltaSchema.from_json(json.dumps(fit.schema)),
            partition_by=partition_by,
            configuration=properties,
        )
    except DeltaError as error:
        raise ConfigError(
            problem=f"The table {path} cannot be created: {error}",
            fix="Check the record's columns and table.properties.",
            field="path",
        ) from error
    if table is None:
        return load_table(path)
    record_created(table, path)
    return table


def record_created(table: DeltaTable, path: Location) -> None:
    """Record that this sink has created the table."""
    text = json.dumps({"table": str(table.metadata().id)})
    (path / HIDDEN / _CREATED).put(text, up_to=path)


def created_table(path: Location) -> str | None:
    """Return the id of the table that the sink has created in a folder."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        return str(json.loads((path / HIDDEN / _CREATED).read_text())["table"])
    return None


def turns_on_features(properties: Mapping[str, str]) -> bool:
    """Return whether only delta-spark can create a table with these properties."""
    return any(name.startswith(_FEATURE_PROPERTIES) for name in properties)


def add_columns(table: DeltaTable, fit: Fit) -> None:
    """Add the batch's new columns, in a separate commit without rows."""
    columns = pa.schema(DeltaSchema.from_json(json.dumps(fit.schema)).to_arrow())
    try:
        write_deltalake(
            table,
            columns.empty_table(),
            mode="append",
            schema_mode="merge",
            post_commithook_properties=QUIET,
        )
    except DeltaError as error:
        problem = f"The columns {', '.join(fit.added)} could not be added: {error}"
        raise RetriableError(problem) from error


def fields_of(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the table's fields, as Spark's JSON."""
    return list(json.loads(table.schema().to_json())["fields"])


def definition_of(table: DeltaTable | None) -> tuple[Any, ...] | None:
    """Return all of a table that staged rows depend on, for comparisons; None for no table."""
    if table is None:
        return None
    metadata, fields = table.metadata(), fields_of(table)
    for field in fields:
        # Each commit of rows with identities moves it.
        field["metadata"] = {**(field["metadata"] or {}), _HIGHEST_IDENTITY: None}
    return str(metadata.id), fields, metadata.partition_columns, dict(properties_of(table))


def properties_of(table: DeltaTable) -> Mapping[str, str]:
    """Return the table's properties."""
    return {name: str(value) for name, value in table.metadata().configuration.items()}


def writer_properties(table: DeltaTable) -> WriterProperties | None:
    """Return properties that turn off statistics for wide decimals; None if there are none.

    ``deltalake`` would round their bounds to floats or 64 bits, and readers and merges would
    skip files with values outside the bounds. Statistics can be turned off per column, but not
    for columns inside structs.
    """
    wide = [f["name"] for f in fields_of(table) if _has_wide_decimal(f["type"])]
    if not wide:
        return None
    none = ColumnProperties(statistics_enabled="NONE")
    if any(isinstance(f["type"], dict) for f in fields_of(table) if f["name"] in wide):
        return WriterProperties(default_column_properties=none)
    return WriterProperties(column_properties=dict.fromkeys(wide, none))


def _has_wide_decimal(kind: Any) -> bool:
    if isinstance(kind, str):
        found = _DECIMAL.fullmatch(kind)
        return found is not None and int(found[1]) > _EXACT_DIGITS
    parts = [field["type"] for field in kind.get("fields", ())]
    parts += [kind[name] for name in ("elementType", "keyType", "valueType") if name in kind]
    return any(_has_wide_decimal(part) for part in parts)


def size_of(table: DeltaTable) -> int:
    """Return the size of the table's files, in bytes. Reads the log, not the data."""
    return sum(pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist())


def append_obstacle(table: DeltaTable) -> str | None:
    """Return why only Spark may append to the table; None if files may be added directly."""
    return next(_obstacles(table), None)


def merge_obstacle(table: DeltaTable) -> str | None:
    """Return why ``deltalake`` may not merge into the table; None if it may."""
    properties = properties_of(table)
    for name in _PLAIN_PROPERTIES:
        if properties.get(name) == "true":
            return name
    definition = table.schema().to_json()
    if '"timestamp_ntz"' in definition:
        return "a column of type TIMESTAMP_NTZ"
    if '"variant"' in definition:
        return "a column of type VARIANT"
    return append_obstacle(table)


def _obstacles(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    for feature in protocol.writer_features or ():
        if feature not in _HARMLESS:
            yield f"the feature {feature}"
    yield from (name for name, value in properties_of(table).items() if _binds(name, value))
    fields = fields_of(table)
    for field in fields:
        for key in field.get("metadata") or {}:
            if key.startswith(_BINDING_METADATA):
                yield f"{key} of the column {field['name']}"
        if required(field["type"]):
            yield f"a part of the column {field['name']} that is not nullable"
    kinds = {field["name"]: str(field["type"]) for field in fields}
    for name in table.metadata().partition_columns:
        if kinds[name] not in _PARTITION_TYPES and not kinds[name].startswith("decimal"):
            yield f"a partition column of type {kinds[name]}"


def _binds(name: str, value: str) -> bool:
    if name == "delta.columnMapping.mode":
        return value != "none"
    if name.startswith("delta.enable") and name not in _PLAIN_PROPERTIES:
        return value == "true"
    return name.startswith("delta.constraints.")


def table_findings(settings: DeltaSettings) -> Iterable[Finding]:
    """Yield the findings of ``headrace doctor`` about the target table."""
    requirement = f"Delta table {settings.path}"
    try:
        table = open_table(Location.of(settings.path))
    except SinkError as error:
        yield Finding(requirement, Verdict.FAILED, error.problem, error.fix)
        return
    except DeltaError as error:
        yield Finding(requirement, Verdict.FAILED, str(error), "Choose another folder.")
        return
    if table is None:
        yield Finding(requirement, Verdict.OK, "does not exist: the first batch creates it")
        return
    columns = [str(field["name"]) for field in fields_of(table)]
    found = f"version {table.version()}, {len(columns)} columns"
    yield Finding(requirement, Verdict.OK, found)
    obstacle = merge_obstacle(table) if settings.upsert else append_obstacle(table)
    if obstacle is not None:
        yield Finding(
            "commits without Spark",
            Verdict.WARNING,
            f"the table has {obstacle}",
            "No action is needed: delta-spark commits, which takes longer.",
        )
    divided = list(table.metadata().partition_columns)
    if settings.partition_by and divided != list(settings.partition_by):
        fix = "Remove partition.by: an existing table keeps its partitioning."
        yield Finding("partition.by", Verdict.FAILED, ", ".join(divided) or "no column", fix)
    there = {name.lower() for name in columns}
    for name in settings.key_fields if settings.upsert else ():
        if name.lower() not in there:
            yield Finding(
                f"column {name} of the key",
                Verdict.WARNING,
                "not in the table",
                f"ALTER TABLE delta.`{settings.path}` ADD COLUMN {name} ..., "
                "or set schema.evolution.add=evolve.",
            )


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, with its action from ``DeltaTable.get_add_actions``."""

    action: dict[str, Any]

    @property
    def path(self) -> str:
        """The path as in the log: percent-encoded."""
        return str(self.action["path"])

    @property
    def size_bytes(self) -> int:
        return int(self.action["size_bytes"])

    @property
    def values(self) -> dict[str, str | None]:
        """The values of the partition columns, as in the log."""
        found = ((k.partition("."), v) for k, v in self.action.items())
        return {name: _text(v) for (kind, _, name), v in found if kind == "partition"}

    def is_inside(self, table: Location) -> bool:
        """Return whether the file is in the table's folder, with links resolved."""
        return file_at(table, self.path).resolved().is_below(table.resolved())

    @contextmanager
    def opened(self, table: Location) -> Iterator[pq.ParquetFile]:
        """Open the file; INT96 timestamps are read as microseconds.

        Raises SinkError for a file outside of the table, which may not be for its readers.
        """
        if not self.is_inside(table):
            raise SinkError(
                problem=f"The log of the table {table} names a file outside of it: {self.path}",
                fix="Copy the table with its files, as a deep clone does.",
                field="path",
            )
        with (
            file_at(table, self.path).open_input() as file,
            pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet,
        ):
            yield parquet

    def removal(self, now_ms: int, *, change: bool = True) -> dict[str, Any]:
        """Return the remove action; ``change`` is False if other files keep the rows."""
        remove = {
            "path": self.path,
            "deletionTimestamp": now_ms,
            "dataChange": change,
            "extendedFileMetadata": True,
            "partitionValues": self.values,
            "size": self.size_bytes,
        }
        return {"remove": remove}


def added_file(path: Location, table: Location, values: Mapping[str, str | None]) -> AddedFile:
    """Return the entry of a written file, with its statistics, for the table's log.

    ``values`` are the values of the partition columns.
    """
    with path.open_input() as file:
        footer, size_bytes = pq.read_metadata(file), file.size()
    name = path.relative_to(table)
    return AddedFile(name, size_bytes, footer.num_rows, dict(values), file_stats(footer))


def schemas_of(fields: Iterable[Mapping[str, Any]]) -> dict[str, Schema]:
    """Return the schemas of a table's fields by name; ``fields`` are in Spark's JSON."""
    found = from_spark_json({"type": "struct", "fields": list(fields)})
    return {field.name: field.schema for field in found.fields}


def _text(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case Decimal():
            return f"{value:f}"
        case date():
            return value.isoformat()
        case _:
            return str(value)
