"""Parses user input: KEY=VALUE options, choices, and files with their lines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Return the keys and values of ``KEY=VALUE`` options. Raises ConfigError."""
    from headrace.sdk import ConfigError

    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            # Not the text itself: it may be a password.
            problem = f"{option} must have the form KEY=VALUE."
            raise ConfigError(problem, field=option, fix="Write a key and a value.")
        found[key.strip()] = value
    return found


def json_pairs(texts: list[str] | None, option: str) -> dict[str, Any]:
    """Return the same with values parsed as JSON where they are valid JSON."""
    found: dict[str, Any] = {}
    for key, value in pairs(texts, option).items():
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def check_one_of(text: str, options: Iterable[str], noun: str, field: str) -> None:
    """Raise ConfigError if the text is not one of the options."""
    from headrace.sdk import ConfigError

    if text not in list(options):
        problem, fix = f"Invalid {noun} {text!r}.", f"Use one of: {', '.join(options)}."
        raise ConfigError(problem, field=field, fix=fix)


def read_text(file: Path, field: str) -> str:
    """Return the text of a file; ``-`` is the standard input. Raises ConfigError."""
    from headrace.sdk import ConfigError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
        raise ConfigError(problem, field=field, fix="Check the path.") from error
    except UnicodeDecodeError as error:
        problem = f"{file} is not UTF-8: {error.reason} at byte {error.start}."
        raise ConfigError(problem, field=field, fix="Save it as UTF-8.") from error


def read_lines(
    file: Path, field: str, noun: str, fix: str, parse: Callable[[str], Any] = json.loads
) -> list[Any]:
    """Return the parsed lines of a file, without empty lines.

    Raises ConfigError for a file that cannot be read, and for the first line for which
    ``parse`` raises ValueError.
    """
    from headrace.sdk import ConfigError

    found = []
    for number, line in enumerate(read_text(file, field).splitlines(), 1):
        if line.strip():
            try:
                found.append(parse(line))
            except ValueError as error:
                problem = f"Line {number} of {file} is not {noun}: {error}."
                raise ConfigError(problem, field=field, fix=fix) from error
    return found
