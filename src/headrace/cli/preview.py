"""``headrace preview``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import Invocation, invocation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from headrace.cli.terminal import Terminal
    from headrace.dataplane import Stage
    from headrace.model import Definition
    from headrace.runtime.app import Runtime


@dataclass(frozen=True)
class Shown:
    """A stage as a server tells of it; see headrace.dataplane.Stage."""

    name: str
    fields: dict[str, str]
    records: list[dict[str, Any]]


def preview(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    rows: Annotated[int, typer.Option(min=1, help="How many records to read.")] = 20,
    connector: Annotated[
        str | None, typer.Option(help="Which connector, if the file defines several.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show the first records at the source and after each step. Writes nothing."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=True) as runtime:
        from headrace.cli.checked_files import check_files

        checked = check_files(runtime, [file])
        if code := checked.report(terminal, as_json=as_json, quiet=invocation.quiet):
            return code
        definition = _chosen([each for _, each in checked.definitions], connector)
        stages = _stages(runtime, definition, rows, invocation)
    tell(terminal, definition.name, stages)
    return 0


def tell(terminal: Terminal, connector: str, stages: Sequence[Stage | Shown]) -> None:
    """Print stages, as tables or as JSON."""
    if terminal.as_json:
        terminal.print_json(to_json(connector, stages))
        return
    for stage in stages:
        terminal.print(stage_table(stage, width=terminal.width))
        terminal.print(f"{summary(stage)}\n")
    if not any(stage.records for stage in stages):
        terminal.note(f"{connector}: the source has no records")


def to_json(connector: str, stages: Sequence[Stage | Shown]) -> dict[str, object]:
    """Return the stages as JSON values."""
    return {
        "connector": connector,
        "stages": [
            {"name": stage.name, "fields": stage.fields, "records": stage.records}
            for stage in stages
        ],
    }


def stage_table(stage: Stage | Shown, *, width: int | None) -> RenderableType:
    """Return the records of one stage: a column a field, and what became of each."""
    from headrace.cli.terminal import grid

    keyed = any(record.get("key") is not None for record in stage.records)
    ended = any("dropped" in record or "error" in record for record in stage.records)
    names = list(stage.fields) or ["value"]
    headings = [f"{name}\n{stage.fields.get(name, '')}".rstrip() for name in names]
    headings = [*(["key"] if keyed else []), *headings, *(["fate"] if ended else [])]
    rows, styles = [], []
    for record in stage.records:
        fate, style = _fate(record)
        key = [record.get("key")] if keyed else []
        rows.append([*key, *_values(record.get("value"), names), *([fate] if ended else [])])
        styles.append(style)
    kept = 1 if ended else 0
    return grid(headings, rows, width=width, title=stage.name, styles=styles, kept=kept)


def summary(stage: Stage | Shown) -> str:
    """Return the stage's figures in one line."""
    dropped = sum("dropped" in record for record in stage.records)
    rejected = sum("error" in record for record in stage.records)
    parts = ["1 record" if len(stage.records) == 1 else f"{len(stage.records)} records"]
    parts += [f"{dropped} dropped here"] if dropped else []
    parts += [f"{rejected} rejected here"] if rejected else []
    return ", ".join(parts)


def _chosen(definitions: Sequence[Definition], connector: str | None) -> Definition:
    from headrace.cli.failures import unknown

    if connector is None:
        return definitions[0]
    for definition in definitions:
        if definition.name == connector:
            return definition
    names = [definition.name for definition in definitions]
    raise unknown(connector, names, noun="connector", field="--connector")


def _stages(
    runtime: Runtime, definition: Definition, rows: int, invocation: Invocation
) -> list[Stage]:
    terminal = invocation.terminal
    if invocation.quiet or invocation.as_json or not terminal.interactive:
        return runtime.preview(definition, rows)
    with terminal.err.status(f"reading {rows} records of {definition.name}"):
        return runtime.preview(definition, rows)


def _fate(record: dict[str, Any]) -> tuple[str, str]:
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
