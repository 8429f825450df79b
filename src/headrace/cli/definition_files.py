"""Reads the definition files of a server's connectors, parsed or as raw documents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.control import Served, documents_of, read_documents, served
from headrace.plugins import Registry
from headrace.sdk import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_files(files: Sequence[Path]) -> list[Served]:
    """Return the connectors that files describe; ``-`` is the standard input.

    Raises ConfigErrors with all errors in the files, including duplicate names.
    """
    return list(read_placed(files).values())


def read_placed(files: Sequence[Path]) -> dict[tuple[Path, str], Served]:
    """Return the connectors by file and name. Raises as ``read_files`` does."""
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
    if str(file) == "-":
        return documents_of(sys.stdin.read(), Path("standard input"))
    return read_documents(file)


def _placed(error: ConfigError, file: Path) -> ConfigError:
    """Return the error with its file added to the field, unless the field is the file."""
    if error.field == "file":
        return error
    place = f"{file}: {error.field}" if error.field else str(file)
    return ConfigError(error.problem, field=place, fix=error.fix)
