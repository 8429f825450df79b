"""Definition files, read and checked: everything that is wrong, at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cli.failures import exit_code, flat, show
from headrace.sdk import ConfigError, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.cli.terminal import Terminal
    from headrace.model import Definition
    from headrace.runtime.app import Runtime


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and where.

    Args:
        file: The file.
        error: What is wrong.
        connector: The connector, where the file could be read that far.
    """

    file: Path
    error: HeadraceError
    connector: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"file": str(self.file), "connector": self.connector, **self.error.to_json()}


@dataclass
class CheckedFiles:
    """The definitions of several files with what was found wrong in them."""

    definitions: list[tuple[Path, Definition]] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def show(self, terminal: Terminal, *, warnings: bool = True) -> None:
        """Print the findings on stderr, warnings first."""
        names = {finding.connector for finding in (*self.errors, *self.warnings)}
        files = {finding.file for finding in (*self.errors, *self.warnings)}

        def where(finding: Finding) -> str:
            file = str(finding.file) if len(files) > 1 else ""
            connector = finding.connector if len(names) > 1 else ""
            return ": ".join(part for part in (file, connector) if part)

        for finding in self.warnings if warnings else ():
            show([finding.error], terminal, kind="warning", where=where(finding))
        for finding in self.errors:
            show([finding.error], terminal, where=where(finding))

    def report(self, terminal: Terminal, *, as_json: bool, quiet: bool) -> int:
        """Tell what was found before a command begins; return its exit code, 0 to begin."""
        if self.errors and as_json:
            errors = [finding.to_json() for finding in self.errors]
            terminal.print_json({"event": "error", "errors": errors})
        elif not as_json:
            self.show(terminal, warnings=not quiet)
        return self.exit_code()

    def exit_code(self) -> int:
        """Return the exit code for the errors; 0 for none."""
        return exit_code(finding.error for finding in self.errors)


def check_files(runtime: Runtime, files: Sequence[Path]) -> CheckedFiles:
    """Read and check files. Starts no Spark; raises nothing that a definition causes."""
    checked = CheckedFiles()
    for file in files:
        try:
            found = runtime.definitions([file])
        except HeadraceError as error:
            checked.errors += [Finding(file, each) for each in flat([error])]
            continue
        for definition in found:
            _check(runtime, file, definition, checked)
    return checked


def _check(runtime: Runtime, file: Path, definition: Definition, checked: CheckedFiles) -> None:
    name = definition.name
    for other, known in checked.definitions:
        if known.name == name:
            problem = f"{name!r} is also defined in {other}."
            error = ConfigError(problem, field="name", fix="Rename one of them.")
            checked.errors.append(Finding(file, error, name))
    findings = runtime.check(definition)
    checked.errors += [Finding(file, error, name) for error in flat(findings.errors)]
    checked.warnings += [Finding(file, error, name) for error in flat(findings.warnings)]
    checked.definitions.append((file, definition))
