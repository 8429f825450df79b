"""Commands that show what a configuration does: preview, transform try and mapping."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.inputs import read_files, read_lines
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Files, Json, OneConnector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from headrace.cli.terminal import Terminal
    from headrace.runtime.mapping import SinkMapping
    from headrace.sdk.tables import MappedColumn


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
        terminal.print(f"{stage_summary(stage)}\n")
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


def stage_summary(stage: Stage) -> str:
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


transforms = typer.Typer(help="Try transforms on sample records.")

_DEFAULTS = {"topic": '"topic"', "headers": "[]", "partition": "null", "timestamp": "null"}
_DEFAULTS |= {"key": "null", "value": "null"}
_LOGICAL = "org.apache.kafka.connect.data."


@transforms.callback()
def transform() -> None:
    """Make Typer treat ``try`` as a subcommand although it is the only one."""


@transforms.command("try")
def try_(
    context: typer.Context,
    config: Annotated[
        Path, typer.Option("--config", help="A JSON or YAML file with transforms.")
    ],
    records: Annotated[Path, typer.Option(help="Records, one JSON object per line.")],
    as_json: Json = False,
) -> None:
    """Run a chain of transforms on sample records and show each record after each step."""
    from headrace.control import read_config

    invocation = invocation_of(context)
    terminal = invocation.terminal
    keys = read_config(config)
    samples = read_lines(records, "--records", "JSON", "Write one JSON object per line.")
    with invocation.runtime(short_lived=True) as runtime:
        answer = runtime.try_transforms({"config": keys, "records": samples})
    if as_json:
        terminal.print_json(answer)
        return
    for number, (record, result) in enumerate(zip(samples, answer["results"], strict=True), 1):
        terminal.print(*record_lines(number, record, result), "")


def record_lines(number: int, sample: object, result: Mapping[str, Any]) -> list[Text]:
    """Return the output for one record: the record itself, and the changes of each step."""
    from rich.text import Text

    before = dict(sample) if isinstance(sample, dict) else {"value": sample}
    shown = [Text(f"record {number}", style="bold"), _line("given", _changes({}, before))]
    for step in result["steps"]:
        shown.append(_step(step, before))
        before = step.get("record", before)
    if not result["steps"] and "error" in result:
        shown.append(_step({"name": "", **result}, before))
    return shown


def _step(step: Mapping[str, Any], before: Mapping[str, Any]) -> Text:
    name = str(step["name"])
    if "error" in step:
        error = step["error"]
        return _line(name, f"rejected by {error['class']}: {error['message']}", "red")
    if "dropped" in step:
        return _line(name, "dropped", "dim")
    return _line(name, _changes(before, step["record"]) or "unchanged")


def _line(name: str, text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text.assemble("  ", (f"{name:<12}", "cyan"), " ", (text, style))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    was, now = _cells(before), _cells(after)
    # A default for a part that the user omitted is not a change.
    changed = [name for name in now if now[name] != was.get(name, was and _DEFAULTS.get(name))]
    return "  ".join(f"{name}={now[name]}" for name in changed)


def _cells(record: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: _schema(cell) if name.endswith("_schema") else _short(cell)
        for name, cell in record.items()
    }


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _schema(tree: object) -> str:
    """Return a schema in short form, such as ``{id: int32, name: string?}``."""
    if not isinstance(tree, dict):
        return _short(tree)
    name = str(tree.get("name") or tree.get("type")).removeprefix(_LOGICAL)
    match tree.get("type"):
        case "struct":
            fields = (f"{f.get('field')}: {_schema(f)}" for f in tree.get("fields", ()))
            name = f"{tree.get('name') or ''}{{{', '.join(fields)}}}"
        case "array":
            name = f"[{_schema(tree.get('items'))}]"
        case "map":
            name = f"{{{_schema(tree.get('keys'))} -> {_schema(tree.get('values'))}}}"
    return f"{name}?" if tree.get("optional") else name


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
