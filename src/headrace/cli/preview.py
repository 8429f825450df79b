"""``headrace preview`` and ``headrace connector preview``: a configuration's first records."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Files, Json, OneConnector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from headrace.cli.terminal import Terminal

Stage = dict[str, Any]
"""A headrace.dataplane.Stage as a server's JSON: its name, fields, records and reader."""


def preview(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    rows: Annotated[int, typer.Option(min=1, help="How many records to read.")] = 20,
    connector: OneConnector = None,
    as_json: Json = False,
) -> int:
    """Show the first records at the source and after each step. Writes nothing."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=True) as runtime:
        from headrace.cli.failures import chosen_connector
        from headrace.cli.validate import accepted_files

        checked = accepted_files(runtime, [file], terminal)
        definition = chosen_connector({d.name: d for _, d in checked.definitions}, connector)
        with terminal.status(f"reading {rows} records of {definition.name}"):
            found = runtime.preview(definition, rows)
    stages = [
        {"name": s.name, "fields": s.fields, "records": s.records, "reader": s.reader}
        for s in found
    ]
    show_stages(terminal, definition.name, stages)
    return 0


def preview_on_server(
    context: typer.Context,
    files: Files,
    *,
    connector: OneConnector = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many records.")] = 20,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")
    ] = 120,
    as_json: Json = False,
) -> None:
    """Show the first records of a source and after each transform, run by the server.

    Stores and writes nothing.
    """
    from headrace.cli.definition_files import read_files
    from headrace.cli.failures import chosen_connector

    described = chosen_connector({each.name: each for each in read_files(files)}, connector)
    invocation = invocation_of(context)
    with invocation.client(timedelta(seconds=timeout)) as client:
        stages = client.preview(described.config, rows)
    show_stages(invocation.terminal, described.name, stages)


def show_stages(terminal: Terminal, connector: str, stages: Sequence[Stage]) -> None:
    """Print stages, as tables or as JSON."""
    if terminal.as_json:
        terminal.print_json({"connector": connector, "stages": stages})
        return
    for stage in stages:
        terminal.print(stage_table(stage, width=terminal.width))
        terminal.print(f"{summary(stage)}\n")
    if not any(stage["records"] for stage in stages):
        terminal.note(f"{connector}: the source has no records")


def stage_table(stage: Stage, *, width: int | None) -> RenderableType:
    """Return the records of one stage: a column for each field, and each record's fate."""
    from headrace.cli.terminal import grid

    fields, records = stage["fields"], stage["records"]
    keyed = any(record.get("key") is not None for record in records)
    ended = any("dropped" in record or "error" in record for record in records)
    names = list(fields) or ["value"]
    headings = [f"{name}\n{fields.get(name, '')}".rstrip() for name in names]
    headings = [*(["key"] if keyed else []), *headings, *(["fate"] if ended else [])]
    rows, styles = [], []
    for record in records:
        fate, style = _fate(record)
        key = [record.get("key")] if keyed else []
        rows.append([*key, *_values(record.get("value"), names), *([fate] if ended else [])])
        styles.append(style)
    pinned = 1 if ended else 0
    return grid(headings, rows, width=width, title=stage["name"], styles=styles, pinned=pinned)


def summary(stage: Stage) -> str:
    """Return the stage's record counts in one line."""
    records = stage["records"]
    dropped = sum("dropped" in record for record in records)
    rejected = sum("error" in record for record in records)
    parts = ["1 record" if len(records) == 1 else f"{len(records)} records"]
    parts += [f"{dropped} dropped here"] if dropped else []
    parts += [f"{rejected} rejected here"] if rejected else []
    parts += [f"read by {reader}"] if (reader := stage.get("reader")) else []
    return ", ".join(parts)


def _fate(record: Mapping[str, Any]) -> tuple[str, str]:
    if "error" in record:
        error = record["error"]
        reason = error.get("message") if isinstance(error, dict) else error
        plugin = error.get("plugin") if isinstance(error, dict) else None
        return f"rejected by {plugin}: {reason}" if plugin else f"rejected: {reason}", "red"
    if "dropped" in record:
        return f"dropped by {record['dropped']}", "dim"
    return "", ""


def _values(value: object, names: Sequence[str]) -> list[object]:
    if isinstance(value, dict):
        return [value.get(name) for name in names]
    return [value, *("" for _ in names[1:])]
