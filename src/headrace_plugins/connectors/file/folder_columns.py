"""Columns whose values are in the names of folders, such as day=2026-01-31, as in Hive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema, SourceError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.folders import NULL_FOLDER
from headrace.sdk.location import Location
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.inference import infer_csv, to_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.listing import NumberedFile


_AS_BYTES = "surrogateescape"


@dataclass(frozen=True, slots=True)
class FolderColumns:
    """The columns in the names of the folders between a root and its files.

    Their values are parsed as in CSV.
    """

    root: Location | None
    """None to read no such columns."""
    dialect: Dialect
    """For the zone of times, which are in ISO 8601."""

    def names(self, files: Iterable[NumberedFile]) -> list[str]:
        """Return the names of the columns of some files."""
        return list(dict.fromkeys(name for file in files for name in self.texts(file.path)))

    def schema(self, files: Sequence[NumberedFile], own: Collection[str]) -> Schema:
        """Infer the types of the columns of some files, other than those in the files."""
        names = _others(self.names(files), own)
        if not names:
            return Schema.struct({})
        texts = [self.texts(file.path) for file in files]
        rows = [_line(names), *(_line([each.get(name) for name in names]) for each in texts)]
        return to_schema(infer_csv(b"".join(rows), self._plain))

    def values(
        self, files: Sequence[NumberedFile], schema: Schema, own: Collection[str]
    ) -> dict[int, pa.RecordBatch]:
        """Return the values of each file that are not null, as a row, by the file's number.

        Args:
            files: Some files.
            schema: The schema of all rows.
            own: The columns that are in the files themselves.

        Raises SourceError for a text that does not have its column's type.
        """
        texts = [self.texts(file.path) for file in files]
        names = [name for name in _others(self.names(files), own) if schema.field(name)]
        names = [name for name in names if any(each.get(name) is not None for each in texts)]
        if not names:
            return {}
        wanted = optional(
            Schema.struct({f.name: f.schema for f in schema.fields if f.name in names}), names
        )
        lines = CsvLines(wanted, ["", *names], self._plain)
        # Without the first value, a null would be an empty line, which is no record.
        records = [_line(["x", *(each.get(name) for name in names)]) for each in texts]
        parsed = lines.read(b"".join(records))
        if parsed.rejected:
            pairs = zip(files, map(lines.read, records), strict=True)
            file, [bad, *_] = next((f, each.rejected) for f, each in pairs if each.rejected)
            raise SourceError(
                problem=f"A folder of {file.path} has no value of its column: {bad.reason}.",
                fix="Rename the folder, declare a schema in which the column is a STRING, or "
                "set partition.columns to false.",
                field="schema",
            )
        found = {}
        for number, file in enumerate(files):
            row = parsed.rows.take([number])
            if known := [name for name in row.schema.names if not row[name].null_count]:
                found[file.number] = row.select(known)
        return found

    @property
    def _plain(self) -> Dialect:
        return replace(
            self.dialect,
            header=True,
            delimiter=",",
            quote='"',
            escape=None,
            null_value="",
            encoding="UTF-8",
            timestamp_format=None,
            date_format=None,
            is_inferred=False,
        )

    def texts(self, path: str) -> dict[str, str | None]:
        """Return a file's values as text, by column."""
        if self.root is None or "=" not in path:
            return {}
        *folders, _ = Location.of(path).relative_to(self.root).split("/")
        parts = (folder.partition("=") for folder in folders)
        return {
            unquote(name): None if text == NULL_FOLDER else unquote(text, errors=_AS_BYTES)
            for name, sign, text in parts
            if sign and name
        }


def _others(names: Iterable[str], own: Collection[str]) -> list[str]:
    """Return the names that are not those of own columns, in whatever case."""
    known = {name.lower() for name in own}
    return [name for name in names if name.lower() not in known]


def _line(texts: Iterable[str | None]) -> bytes:
    """Return a CSV record in which only a null has no quotes."""
    doubled = ("" if t is None else '"' + t.replace('"', '""') + '"' for t in texts)
    return (",".join(doubled) + "\n").encode(errors=_AS_BYTES)


def optional(schema: Schema, names: Collection[str]) -> Schema:
    """Return the schema with optional columns, as their values are not in the files."""
    return schema.with_fields(
        {
            f.name: f.schema.replaced(optional=True) if f.name in names else f.schema
            for f in schema.fields
        }
    )


def names_of(values: pa.RecordBatch | None) -> tuple[str, ...]:
    """Return the columns of which a file's folders have values."""
    return () if values is None else tuple(values.schema.names)


def filled(
    rows: pa.RecordBatch, values: pa.RecordBatch | None, schema: Schema
) -> pa.RecordBatch:
    """Return rows with the values of their file's folders where they have no value."""
    if values is None:
        return rows
    columns = rows.columns
    for name, value in zip(values.schema.names, values.columns, strict=True):
        at = rows.schema.get_field_index(name)
        columns[at] = pc.coalesce(columns[at], value[0])
    return conform(pa.RecordBatch.from_arrays(columns, rows.schema.names), to_arrow(schema))
