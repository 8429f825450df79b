"""The first line of a CSV file, and how it goes with a schema."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from headrace.sdk import Schema, SourceError
from headrace_plugins.connectors.file.sample import read_sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.connectors.file.dialect import Dialect

__all__ = ["as_headed", "header_names", "read_header"]

_HEADER_BYTES = 64 * 1024
_TEXT = Schema.string(optional=True)


def read_header(path: str, dialect: Dialect) -> list[str]:
    """Return the names in the first line of a CSV file; none for an empty file."""
    return header_names(read_sample(path, dialect, rows=1, size_bytes=_HEADER_BYTES), dialect)


def header_names(line: bytes, dialect: Dialect) -> list[str]:
    """Return the names in a header; a column without one is called as Spark calls it."""
    doubled = dialect.escape == dialect.quote
    rows = csv.reader(
        [line.decode(errors="replace").rstrip("\r\n")],
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        doublequote=doubled,
        escapechar=None if doubled else dialect.escape,
    )
    names = next(iter(rows), [])
    return [name or f"_c{number}" for number, name in enumerate(names)]


def as_headed(header: Sequence[str], schema: Schema, *, renames: bool, path: str) -> Schema:
    """Return a file's columns in the file's order, matched with the schema's by name.

    A column that the schema does not have is a text.

    Args:
        header: The names in the file.
        schema: The columns that are known.
        renames: Whether the schema may give all columns other names, by their order, as one
            that was declared may.
        path: The file, for the error.

    Raises:
        SourceError: Neither names nor order tell which column is which.
    """
    known = [field.name for field in schema.fields]
    strangers = [name for name in header if name not in known]
    if renames and strangers and any(name not in header for name in known):
        pairs = zip(header, known, strict=False)
        moved = any(
            name != other and (name in known or other in header) for name, other in pairs
        )
        if moved or len(header) != len(known):
            raise SourceError(
                problem=f"The header of {path} is {', '.join(header)}; the declared columns "
                f"are {', '.join(known)}.",
                fix="Use the header's names in schema, or declare all columns in the order of "
                "the files.",
            )
        return schema
    found = {name: schema.field(name) for name in header}
    return Schema.struct(
        {name: field.schema if field else _TEXT for name, field in found.items()}
    )
