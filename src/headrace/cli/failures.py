"""Prints errors with their fixes and maps them to exit codes."""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

import typer

from headrace.cli.terminal import visible
from headrace.model import SparkLostError
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.errors import Category, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.cli.invocation import Invocation
    from headrace.cli.terminal import Terminal

RUN_FAILED, WRONG_CONFIG, INCOMPLETE_MACHINE, SPARK_LOST = 1, 2, 3, 4
DIFFERENT = 5
"""``headrace verify`` found a target that differs from its source."""
_CODES = {
    Category.RUN: RUN_FAILED,
    Category.CONFIG: WRONG_CONFIG,
    Category.ENVIRONMENT: INCOMPLETE_MACHINE,
}


_Found = TypeVar("_Found")


class UsageError(ConfigError):
    """The command line is not valid."""

    code = "usage"


def exit_code(errors: Iterable[Exception]) -> int:
    """Return the exit code for errors: their category's, or 1 if their codes differ."""
    known = map(_known, errors)
    codes = {SPARK_LOST if isinstance(e, SparkLostError) else _CODES[e.category] for e in known}
    if not codes:
        return 0
    return codes.pop() if len(codes) == 1 else RUN_FAILED


def report(error: Exception, invocation: Invocation) -> int:
    """Print the error that ended a command, log it if it is a bug, return the exit code."""
    terminal = invocation.terminal
    error = invocation.redacted_error(error)
    known = _from_typer(error) or _from_system(error) or _known(error, invocation)
    show_traceback(error, invocation)
    if invocation.as_json:
        terminal.print_json({"event": "error", "errors": errors_json([known])})
    else:
        show([known], terminal)
    return exit_code([known])


def show_traceback(error: Exception, invocation: Invocation) -> None:
    """Print an error's traceback on stderr with --verbose."""
    if invocation.verbose:
        text = "".join(traceback.format_exception(error))
        invocation.terminal.err.print(text, soft_wrap=True, end="")


def show_of_task(error: Exception, invocation: Invocation, task: str) -> None:
    """Print the error that ended a task of a run, and log it if it is a bug."""
    show([_known(error, invocation)], invocation.terminal, where=task)


def show(
    errors: Iterable[Exception], terminal: Terminal, *, kind: str = "error", where: str = ""
) -> None:
    """Print errors on stderr as ``error[code] field: problem`` with ``fix: ...`` below.

    ``where`` is printed before the field: the file and the connector.
    """
    from rich.text import Text

    style = "bold red" if kind == "error" else "bold yellow"
    for error in flat(errors):
        line = Text.assemble((f"{kind}[{error.code}]", style), " ")
        place = ": ".join(part for part in (where, error.field) if part)
        if place:
            line.append(f"{visible(place)}: ", "bold")
        line.append(visible(error.problem))
        if error.fix:
            line.append("\n  fix: ", "green").append(visible(error.fix))
        terminal.err.print(line, soft_wrap=True)


def flat(errors: Iterable[Exception]) -> list[HeadraceError]:
    """Return the errors with each ConfigErrors replaced by its parts."""
    found: list[HeadraceError] = []
    for error in errors:
        known = _known(error)
        found += known.errors if isinstance(known, ConfigErrors) else [known]
    return found


def errors_json(errors: Iterable[Exception]) -> list[dict[str, object]]:
    """Return the errors as JSON values, with each ConfigErrors replaced by its parts."""
    return [error.to_json() for error in flat(errors)]


def unknown(name: str, known: Sequence[str], *, noun: str, field: str) -> ConfigError:
    """Return the error for an unknown name; its fix suggests similar known names."""
    close = get_close_matches(name, known)
    if close:
        fix = f"Did you mean {' or '.join(close)}?"
    else:
        fix = f"Use one of: {', '.join(known)}." if known else f"There is no {noun} yet."
    return ConfigError(f"No {noun} is called {name!r}.", field=field, fix=fix)


def chosen_connector(found: Mapping[str, _Found], name: str | None) -> _Found:
    """Return the connector of --connector, or the first if that is None, by its name.

    Raises ConfigError if there is no such connector.
    """
    if name is not None and name not in found:
        raise unknown(name, list(found), noun="connector", field="--connector")
    return found[next(iter(found)) if name is None else name]


def _known(error: Exception, invocation: Invocation | None = None) -> HeadraceError:
    """Return the error as a HeadraceError; an unexpected error gets the code ``internal``."""
    if isinstance(error, HeadraceError):
        return error
    fix = "Show its traceback with --verbose; this is a bug in Headrace or in a plugin."
    if invocation is not None and (log := _logged(error, invocation)):
        fix = f"This is a bug in Headrace or in a plugin; its traceback is in {log}."
    return HeadraceError(f"{type(error).__name__}: {error}", fix=fix)


def _logged(error: Exception, invocation: Invocation) -> str | None:
    """Write the traceback to the log file and return its path, if there is a log."""
    from headrace.cli.logs import LOG_FILE, LOGS, log

    if "settings" not in vars(invocation):
        return None
    log.error("command failed unexpectedly", exc_info=error)
    return str(invocation.settings.home / LOGS / LOG_FILE)


def _from_typer(error: Exception) -> HeadraceError | None:
    if isinstance(error, typer.Abort):
        return HeadraceError("Stopped by the user.")
    if not isinstance(error, typer.TyperException):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "headrace"
    return UsageError(error.format_message(), fix=f"See {command} --help.")


def _from_system(error: Exception) -> HeadraceError | None:
    """Return the error as a SetupError if it is one of the file system, else None."""
    if not isinstance(error, OSError) or error.filename is None:
        return None
    problem = f"{error.filename}: {error.strerror}."
    return SetupError(problem, fix="Check the path, its permissions and the free space.")
