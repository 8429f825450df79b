"""``headrace mapping``: the tables and columns that the mapping rules of sinks match now."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.runtime.mapping import SinkMapping
    from headrace.sdk.mapped_tables import MappedColumn


def mapping(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    as_json: Json = False,
) -> int:
    """Show the target tables and columns of each stream. Does not start Spark."""
    from headrace.cli.failures import exit_code, show

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime() as runtime:
        from headrace.cli.validate import accepted_files

        checked = accepted_files(runtime, [file], terminal)
        found = [m for _, each in checked.definitions for m in runtime.mappings(each)]
    for each in found if not as_json else ():
        several = each.connector if len(found) > 1 else ""
        show(each.warnings, terminal, kind="warning", where=several)
        show(each.errors, terminal, where=several)
    terminal.show_rows(
        ("connector", "rule", "stream", "table", "priority", "key", "columns"),
        (row for each in found for row in _rows(each)),
        json=[_to_json(each) for each in found],
        right=("priority",),
        empty=f"{file} has no sink with tables, or there are no streams yet",
    )
    return exit_code(error for each in found for error in each.errors)


def _rows(mapping: SinkMapping) -> Iterator[Sequence[object]]:
    """Yield a row for each stream and table, ordered by rule."""
    found = [
        (stream.name, table) for stream in mapping.streams for table in stream.tables or ()
    ]
    for stream, table in sorted(
        found, key=lambda each: (each[1].rule is None, each[1].rule or 0)
    ):
        title = "" if table.rule is None else mapping.rules[table.rule]
        columns = "" if table.columns is None else ", ".join(map(_column, table.columns))
        key = ", ".join(table.key)
        yield mapping.connector, title, stream, table.table, table.priority, key, columns


def _column(column: MappedColumn) -> str:
    made = "" if column.source in {None, column.name} else f"{column.source} → "
    return f"{made}{column.name}{f' {column.type}' if column.type else ''}"


def _to_json(mapping: SinkMapping) -> dict[str, Any]:
    return {
        "connector": mapping.connector,
        "sink": mapping.plugin,
        "rules": list(mapping.rules),
        "streams": [
            {
                "stream": stream.name,
                "tables": None if stream.tables is None else [asdict(t) for t in stream.tables],
            }
            for stream in mapping.streams
        ],
        "errors": [error.to_json() for error in mapping.errors],
        "warnings": [warning.to_json() for warning in mapping.warnings],
    }
