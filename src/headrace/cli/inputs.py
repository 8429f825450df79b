"""Parses user input: KEY=VALUE options, choices, lines of files, and definition files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.control import Served
    from headrace.sdk import ConfigError


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


def read_files(files: Sequence[Path]) -> list[Served]:
    """Return the connectors that files describe; ``-`` is the standard input.

    Raises ConfigErrors with all errors in the files, including duplicate names.
    """
    return list(read_placed(files).values())


def read_placed(files: Sequence[Path]) -> dict[tuple[Path, str], Served]:
    """Return the connectors by file and name. Raises as ``read_files`` does."""
    from headrace.control import served
    from headrace.plugins import Registry
    from headrace.sdk import ConfigError, ConfigErrors

    registry = Registry()
    found: dict[tuple[Path, str], Served] = {}
    errors: list[ConfigError] = []
    for file in files:
        try:
            described = served(documents_in(file), registry)
        except ConfigErrors as several:
            errors += (_placed(error, file) for error in several.errors)
            continue
        except ConfigError as error:
            errors.append(_placed(error, file))
            continue
        for each in described:
            others = [other for other, name in found if name == each.name]
            if others:
                where = "this file" if others == [file] else str(others[0])
                problem = f"{each.name!r} is also defined in {where}."
                errors.append(_placed(ConfigError(problem, fix="Rename one."), file))
            found[file, each.name] = each
    if errors:
        raise ConfigErrors(errors)
    return found


def documents_in(file: Path) -> Sequence[object]:
    """Return the documents of a file; ``-`` is the standard input. Raises ConfigError."""
    from headrace.control import documents_of, read_documents

    if str(file) == "-":
        return documents_of(sys.stdin.read(), Path("standard input"))
    return read_documents(file)


def _placed(error: ConfigError, file: Path) -> ConfigError:
    """Return the error with its file added to the field, unless the field is the file."""
    from headrace.sdk import ConfigError

    if error.field == "file":
        return error
    place = f"{file}: {error.field}" if error.field else str(file)
    return ConfigError(error.problem, field=place, fix=error.fix)
