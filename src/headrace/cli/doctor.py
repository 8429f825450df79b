"""``headrace doctor``: checks the requirements of connectors and suggests fixes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json
from headrace.cli.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.terminal import Terminal
    from headrace.runtime.doctor import Examined

_HEADINGS = ("connector", "part", "requirement", "verdict", "found", "fix")


def doctor(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    as_json: Json = False,
) -> int:
    """Check everything that the connectors of a file require, and show how to fix problems.

    Connects to each source and target and checks privileges, tables, free space and settings,
    and this machine's Java and jars. Changes nothing and does not start Spark. Exits with 2 if
    a requirement failed.
    """
    from headrace.cli.failures import WRONG_CONFIG
    from headrace.runtime.doctor import examine_definition, examine_machine
    from headrace.sdk.connector import Verdict

    invocation = invocation_of(context)
    checker = invocation.checker()
    found: list[tuple[str, Examined]] = []
    with invocation.terminal.status("checking") as shown:
        report = getattr(shown, "update", lambda _: None)
        for each in checker.definitions([file]):
            report(f"checking {each.name}")
            examined = examine_definition(each, checker.registry)
            found += ((each.name, one) for one in examined)
        found += (("", one) for one in examine_machine(invocation.settings))
    _show(invocation.terminal, found)
    failed = any(one.finding.verdict is Verdict.FAILED for _, one in found)
    return WRONG_CONFIG if failed else 0


def _show(terminal: Terminal, found: Sequence[tuple[str, Examined]]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "connector": connector,
            "part": one.part,
            "requirement": one.finding.requirement,
            "verdict": one.finding.verdict.value,
            "found": one.finding.found,
            "fix": one.finding.fix,
        }
        for connector, one in found
    ]
    shown = ([visible(row[heading]) for heading in _HEADINGS] for row in rows)
    terminal.show_rows(_HEADINGS, shown, json=rows)
