"""``headrace transform``: tries transforms on sample records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.inputs import read_lines
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

app = typer.Typer(help="Try transforms on sample records.")

_DEFAULTS = {"topic": '"topic"', "headers": "[]", "partition": "null", "timestamp": "null"}
_DEFAULTS |= {"key": "null", "value": "null"}
_LOGICAL = "org.apache.kafka.connect.data."


@app.callback()
def transform() -> None:
    """Make Typer treat ``try`` as a subcommand although it is the only one."""


@app.command("try")
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
        terminal.print(*lines(number, record, result), "")


def lines(number: int, sample: object, result: Mapping[str, Any]) -> list[Text]:
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
