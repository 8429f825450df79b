"""``headrace validate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.cli.checked_files import CheckedFiles
    from headrace.cli.terminal import Terminal


def validate(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON or YAML files.", metavar="FILE...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check definitions and show every error at once. Does not start Spark."""
    invocation = invocation_of(context)
    with invocation.runtime() as runtime:
        from headrace.cli.checked_files import check_files

        checked = check_files(runtime, files)
    if as_json:
        invocation.terminal.print_json(to_json(checked))
    else:
        _show(checked, invocation.terminal)
    return checked.exit_code()


def to_json(checked: CheckedFiles) -> dict[str, object]:
    """Return what was found as JSON values."""
    return {
        "valid": not checked.errors,
        "connectors": [
            {"name": definition.name, "kind": definition.kind, "file": str(file)}
            for file, definition in checked.definitions
        ],
        "errors": [finding.to_json() for finding in checked.errors],
        "warnings": [finding.to_json() for finding in checked.warnings],
    }


def _show(checked: CheckedFiles, terminal: Terminal) -> None:
    checked.show(terminal)
    if checked.errors:
        noun = "error" if len(checked.errors) == 1 else "errors"
        terminal.note(f"{len(checked.errors)} {noun}")
        return
    for file, definition in checked.definitions:
        terminal.print(f"ok: {definition.name} ({definition.kind}) in {file}")
