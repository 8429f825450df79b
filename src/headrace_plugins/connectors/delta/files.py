"""Data files of a table: their entries in the log, how to read them, and new files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from headrace.sdk import SinkError
from headrace.sdk.delta import AddedFile, file_stats
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta.history import file_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.sdk import Schema
    from headrace.sdk.location import Location


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, with its action from ``DeltaTable.get_add_actions``."""

    action: dict[str, Any]

    @property
    def path(self) -> str:
        """The path as in the log: percent-encoded."""
        return str(self.action["path"])

    @property
    def size_bytes(self) -> int:
        return int(self.action["size_bytes"])

    @property
    def values(self) -> dict[str, str | None]:
        """The values of the partition columns, as in the log."""
        found = ((k.partition("."), v) for k, v in self.action.items())
        return {name: _text(v) for (kind, _, name), v in found if kind == "partition"}

    def is_inside(self, table: Location) -> bool:
        """Return whether the file is in the table's folder, with links resolved."""
        return file_at(table, self.path).resolved().is_below(table.resolved())

    @contextmanager
    def opened(self, table: Location) -> Iterator[pq.ParquetFile]:
        """Open the file; INT96 timestamps are read as microseconds.

        Raises SinkError for a file outside of the table, which may not be for its readers.
        """
        if not self.is_inside(table):
            raise SinkError(
                problem=f"The log of the table {table} names a file outside of it: {self.path}",
                fix="Copy the table with its files, as a deep clone does.",
                field="path",
            )
        with (
            file_at(table, self.path).open_input() as file,
            pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet,
        ):
            yield parquet

    def removal(self, now_ms: int, *, change: bool = True) -> dict[str, Any]:
        """Return the remove action; ``change`` is False if other files keep the rows."""
        remove = {
            "path": self.path,
            "deletionTimestamp": now_ms,
            "dataChange": change,
            "extendedFileMetadata": True,
            "partitionValues": self.values,
            "size": self.size_bytes,
        }
        return {"remove": remove}


def added_file(path: Location, table: Location, values: Mapping[str, str | None]) -> AddedFile:
    """Return the entry of a written file, with its statistics, for the table's log.

    ``values`` are the values of the partition columns.
    """
    with path.open_input() as file:
        footer, size_bytes = pq.read_metadata(file), file.size()
    name = path.relative_to(table)
    return AddedFile(name, size_bytes, footer.num_rows, dict(values), file_stats(footer))


def schemas_of(fields: Iterable[Mapping[str, Any]]) -> dict[str, Schema]:
    """Return the schemas of a table's fields by name; ``fields`` are in Spark's JSON."""
    found = from_spark_json({"type": "struct", "fields": list(fields)})
    return {field.name: field.schema for field in found.fields}


def _text(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case Decimal():
            return f"{value:f}"
        case date():
            return value.isoformat()
        case _:
            return str(value)
