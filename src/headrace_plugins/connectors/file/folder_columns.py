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
        """Return the names of the columns of some files, of several cases the first."""
        found: dict[str, str] = {}
        for file in files:
            for name in self._texts(file.path):
                found.setdefault(name.lower(), name)
        return list(found.values())

    def columns(self, files: Iterable[NumberedFile], schema: Schema) -> set[str]:
        """Return the columns of a schema that are those of some files."""
        found = (column_of(schema, name) for name in self.names(files))
        return {name for name in found if name is not None}

    def schema(
        self, files: Sequence[NumberedFile], known: Schema, own: Collection[str]
    ) -> Schema:
        """Infer the types of the columns of some files, other than those in the files.

        A name that differs in case from a known column is that column's, see ``values``.
        """
        names = [n for n in self.names(files) if column_of(known, n) in (None, n)]
        in_files = {name.lower() for name in own}
        names = [name for name in names if name.lower() not in in_files]
        if not names:
            return Schema.struct({})
        texts = Schema.struct(dict.fromkeys(names, Schema.string()))
        # Text that is not UTF-8 is an error of `values`, but must not hide other columns here.
        rows = (
            _line(map(self._found(file, texts).get, names)).decode(errors="replace").encode()
            for file in files
        )
        return to_schema(infer_csv(b"".join([_line(names), *rows]), self._plain))

    def _found(self, file: NumberedFile, schema: Schema) -> dict[str, str | None]:
        """Return a file's values as text, by the columns of a schema."""
        found = ((column_of(schema, n), text) for n, text in self._texts(file.path).items())
        return {name: text for name, text in found if name is not None}

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
        if not self.names(files):
            return {}
        in_files = {name.lower() for name in own}
        others = Schema.struct(
            {f.name: f.schema for f in schema.fields if f.name.lower() not in in_files}
        )
        texts = [self._found(file, others) for file in files]
        given = {name for each in texts for name, text in each.items() if text is not None}
        columns = [field.name for field in others.fields if field.name in given]
        if not columns:
            return {}
        kinds = {field.name: field.schema for field in others.fields if field.name in given}
        wanted = optional(Schema.struct(kinds), columns)
        lines = CsvLines(wanted, ["", *columns], self._plain)
        # Without the first value, a null would be an empty line, which is no record.
        records = [_line(["x", *map(each.get, columns)]) for each in texts]
        parsed = lines.read(b"".join(records))
        if parsed.rejected:
            pairs = zip(files, map(lines.read, records), strict=True)
            file, [bad, *_] = next((f, each.rejected) for f, each in pairs if each.rejected)
            raise SourceError(
                problem=f"A folder of {file.path} has no value of its column: {bad.reason}.",
                fix="Rename the folder, or move it away. A schema in which the column is a "
                "STRING reads any value, if the target has no column of another type yet; with "
                "partition.columns=false the columns of all folders are null.",
                field="schema",
            )
        found = {}
        for number, file in enumerate(files):
            row = parsed.rows.take([number])
            if names := [name for name in row.schema.names if not row[name].null_count]:
                found[file.number] = row.select(names)
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

    def _texts(self, path: str) -> dict[str, str | None]:
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


def column_of(schema: Schema, name: str) -> str | None:
    """Return the column of a name, which may have another case, as in Spark; None if none."""
    if schema.field(name) is not None:
        return name
    return next((f.name for f in schema.fields if f.name.lower() == name.lower()), None)


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
