"""``headrace validate``, and the check of definition files that other commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.terminal import Terminal
    from headrace.model import Definition
    from headrace.runtime.plugins import Checks
    from headrace.sdk import HeadraceError


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or warning in a file, with the connector if its name could be read."""

    file: Path
    error: HeadraceError
    connector: str | None = None

    def to_json(self) -> dict[str, object]:
        return {"file": str(self.file), "connector": self.connector, **self.error.to_json()}


@dataclass
class CheckedFiles:
    """The definitions of several files with their errors and warnings."""

    definitions: list[tuple[Path, Definition]] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def show(self, terminal: Terminal, *, warnings: bool = True) -> None:
        """Print the findings on stderr, warnings first."""
        from headrace.cli.failures import show

        found = [*self.errors, *self.warnings]
        names = {each.connector for each in found} | {d.name for _, d in self.definitions}
        files = {each.file for each in found} | {file for file, _ in self.definitions}
        shown = [("warning", each) for each in self.warnings] if warnings else []
        for kind, finding in (*shown, *(("error", each) for each in self.errors)):
            file = str(finding.file) if len(files) > 1 else ""
            connector = finding.connector if len(names) > 1 else ""
            where = ": ".join(part for part in (file, connector) if part)
            show([finding.error], terminal, kind=kind, where=where)

    def one(self, file: Path, connector: str | None) -> Definition:
        """Return a file's definition of a connector, or its only one if that is None.

        Raises UsageError if there are several, and ConfigError if there is no such connector.
        """
        from headrace.cli.failures import UsageError, chosen_connector

        found = {definition.name: definition for _, definition in self.definitions}
        if connector is None and len(found) > 1:
            problem = f"{file} defines several connectors."
            fix = f"Pass one of: {', '.join(found)}."
            raise UsageError(problem, field="--connector", fix=fix)
        return chosen_connector(found, connector)

    def exit_code(self) -> int:
        """Return the exit code for the errors, or 0 without errors."""
        from headrace.cli.failures import exit_code

        return exit_code(finding.error for finding in self.errors)

    def to_json(self) -> dict[str, object]:
        return {
            "valid": not self.errors,
            "connectors": [
                {"name": definition.name, "kind": definition.kind, "file": str(file)}
                for file, definition in self.definitions
            ],
            "errors": [finding.to_json() for finding in self.errors],
            "warnings": [finding.to_json() for finding in self.warnings],
        }


def check_files(checks: Checks, files: Sequence[Path]) -> CheckedFiles:
    """Read and check files. Does not start Spark; reports errors instead of raising them."""
    from headrace.cli.failures import flat
    from headrace.sdk import HeadraceError

    checked = CheckedFiles()
    for file in files:
        try:
            found = checks.definitions([file])
        except HeadraceError as error:
            checked.errors += [Finding(file, each) for each in flat([error])]
            continue
        for definition in found:
            _check(checks, file, definition, checked)
    return checked


def accepted_files(checks: Checks, files: Sequence[Path], terminal: Terminal) -> CheckedFiles:
    """Check files before a command starts, and print the findings; exit if one has an error."""
    checked = check_files(checks, files)
    if checked.errors and terminal.as_json:
        errors = [finding.to_json() for finding in checked.errors]
        terminal.print_json({"event": "error", "errors": errors})
    elif not terminal.as_json:
        checked.show(terminal, warnings=not terminal.quiet)
    if code := checked.exit_code():
        raise typer.Exit(code)
    return checked


def _check(checks: Checks, file: Path, definition: Definition, checked: CheckedFiles) -> None:
    from headrace.cli.failures import flat
    from headrace.sdk import ConfigError

    name = definition.name
    for other, known in checked.definitions:
        if known.name == name:
            problem = f"{name!r} is also defined in {other}."
            error = ConfigError(problem, field="name", fix="Rename one of them.")
            checked.errors.append(Finding(file, error, name))
    findings = checks.check(definition)
    checked.errors += [Finding(file, error, name) for error in flat(findings.errors)]
    checked.warnings += [Finding(file, error, name) for error in flat(findings.warnings)]
    checked.definitions.append((file, definition))


def validate(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON or YAML files.", metavar="FILE...")],
    as_json: Json = False,
) -> int:
    """Check definitions and show all errors at once. Does not start Spark."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    checked = check_files(invocation.checker(), files)
    if not as_json:
        checked.show(terminal)
    if checked.errors:
        count = len(checked.errors)
        noun = "error" if count == 1 else "errors"
        terminal.show(checked.to_json(), empty=f"{count} {noun}")
    else:
        lines = (
            f"ok: {each.name} ({each.kind}) in {file}" for file, each in checked.definitions
        )
        terminal.show(checked.to_json(), *lines)
    return checked.exit_code()
