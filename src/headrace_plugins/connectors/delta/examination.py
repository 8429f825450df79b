"""What ``headrace doctor`` finds of a Delta table that is to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.table import (
    append_obstacle,
    fields_of,
    merge_obstacle,
    open_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace_plugins.connectors.delta.settings import DeltaSettings


def table_findings(settings: DeltaSettings) -> Iterable[Finding]:
    """Yield what is found of a sink's one table."""
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
