"""The target table: made, opened, and given new columns."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from headrace.sdk import ConfigError, RetriableError, deltalog
from headrace.sdk.config import invalid
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.delta import QUIET
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.columns import required

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace_plugins.connectors.delta.columns import Fit
    from headrace_plugins.connectors.delta.settings import DeltaSettings


log = structlog.get_logger(__name__)


HIDDEN = "_headrace"
"""The folder in a table for what is not part of it: staged rows, and its creator."""
_CREATED = "created.json"
_DECIMAL = re.compile(r"decimal\((\d+),\s*-?\d+\)")
_EXACT_DIGITS = 15  # a float holds so many decimal digits exactly
WIDENING = "delta.enableTypeWidening"
# Features that ask nothing of a writer that adds files, once what they allow (constraints,
# generated columns, column mapping) is looked for in the table itself.
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
# They ask nothing of an append, but something of a merge.
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
"""How the metadata of a column begins that has values where none are written."""
_BINDING_METADATA = ("delta.invariants", *OWN_VALUES)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_PARTITION_TYPES = {"boolean", "byte", "short", "integer", "long", "string", "date"}


def check_folder(name: str, value: object) -> None:
    """Raise ConfigError for a path that cannot be a table's folder: a validator of a key."""
    if not value:
        raise invalid(name, value, "Must be a folder", fix="Give the path of a folder.")
    if _ESCAPE.search(Location.of(str(value), field=name).path):
        problem = "Must not contain a percent sign before two hexadecimal digits"
        raise invalid(name, value, problem, fix="Choose another folder: deltalake decodes it.")


def open_table(path: Location) -> DeltaTable | None:
    """Load and return the table in a folder; None when there is none yet."""
    return DeltaTable(str(path)) if DeltaTable.is_deltatable(str(path)) else None


def check_partition_columns(fit: Fit, partition_by: Sequence[str]) -> None:
    """Raise ConfigError for a column that is missing or of a type that divides no table."""
    kinds = {f["name"]: f["type"] for f in fit.fields}
    for name in partition_by:
        kind = kinds.get(name)
        if kind not in _PARTITION_TYPES and not str(kind).startswith("decimal"):
            raise ConfigError(
                problem=f"The records have no column {name} that a table can be divided by.",
                fix="Name a column of texts, whole numbers, decimals, booleans or dates.",
                field="partition.by",
            )


def create_table(
    path: Location, fit: Fit, *, partition_by: Sequence[str], properties: Mapping[str, str]
) -> DeltaTable:
    """Make the table, or open it when another task has made it meanwhile.

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
            problem=f"The table {path} cannot be made: {error}",
            fix="Check the record's columns and table.properties.",
            field="path",
        ) from error
    if table is None:
        return DeltaTable(str(path))
    record_created(table, path)
    return table


def record_created(table: DeltaTable, path: Location) -> None:
    """Remember that the sink has created the table, and not somebody else."""
    text = json.dumps({"table": str(table.metadata().id)})
    (path / HIDDEN / _CREATED).put(text, up_to=path)


def created_table(path: Location) -> str | None:
    """Return the id of the table that the sink has created in a folder."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        return str(json.loads((path / HIDDEN / _CREATED).read_text())["table"])
    return None


def turns_on_features(properties: Mapping[str, str]) -> bool:
    """Return whether a table of these properties has to be made by delta-spark."""
    return any(name.startswith(_FEATURE_PROPERTIES) for name in properties)


def add_columns(table: DeltaTable, fit: Fit) -> None:
    """Add the columns that the batch brings, in a commit of their own that holds no rows."""
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


def properties_of(table: DeltaTable) -> Mapping[str, str]:
    """Return the table's properties."""
    return {name: str(value) for name, value in table.metadata().configuration.items()}


def writer_properties(table: DeltaTable) -> WriterProperties | None:
    """Return what keeps ``deltalake`` from writing bounds of Decimals that it rounds.

    They would be floats, or 64 bits, and readers and merges would pass over files whose values
    lie outside. It can be set column by column, but not for those inside structs.
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
    """Return why files may not be added as they are but by Spark only; None when they may."""
    return next(_obstacles(table), None)


def merge_obstacle(table: DeltaTable) -> str | None:
    """Return why ``deltalake`` may not merge into the table; None when it may."""
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
            yield f"a part of the column {field['name']} that must not be null"
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
    """Yield what ``headrace doctor`` finds of a table that a sink is to write."""
    requirement = f"Delta table {settings.path}"
    try:
        table = open_table(Location.of(settings.path))
    except DeltaError as error:
        yield Finding(requirement, Verdict.FAILED, str(error), "Choose another folder.")
        return
    if table is None:
        yield Finding(requirement, Verdict.OK, "not there yet: the first batch makes it")
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
            "Nothing has to be done: delta-spark commits, which takes longer.",
        )
    divided = list(table.metadata().partition_columns)
    if settings.partition_by and divided != list(settings.partition_by):
        fix = "Leave partition.by out: a table that exists keeps its own."
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
