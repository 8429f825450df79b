"""Files of a table: as its log has them, opened, and new ones."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from headrace.sdk.delta import AddedFile
from headrace.sdk.filestats import file_stats
from headrace.sdk.sparktypes import from_spark_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.sdk import Schema
    from headrace.sdk.location import Location


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, by what ``DeltaTable.get_add_actions`` says of it."""

    action: dict[str, Any]

    @property
    def path(self) -> str:
        """The path as the log has it, that is encoded as in a URL."""
        return str(self.action["path"])

    @property
    def size_bytes(self) -> int:
        return int(self.action["size_bytes"])

    @property
    def values(self) -> dict[str, str | None]:
        """The values of partition columns, as the log has them."""
        found = ((k.partition("."), v) for k, v in self.action.items())
        return {name: _text(v) for (kind, _, name), v in found if kind == "partition"}

    @contextmanager
    def opened(self, table: Location) -> Iterator[pq.ParquetFile]:
        """Open the file, times of Spark's older form as microseconds."""
        with (
            (table / unquote(self.path)).open_input() as file,
            pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet,
        ):
            yield parquet

    def removal(self, now_ms: int, *, change: bool = True) -> dict[str, Any]:
        """Return the action that removes it; ``change`` unless its rows stay elsewhere."""
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
    """Return a file that was written, as it is added to a table, with its statistics.

    ``values`` are those of partition columns.
    """
    with path.open_input() as file:
        footer, size_bytes = pq.read_metadata(file), file.size()
    name = path.relative_to(table)
    return AddedFile(name, size_bytes, footer.num_rows, dict(values), file_stats(footer))


def schemas_of(fields: Iterable[Mapping[str, Any]]) -> dict[str, Schema]:
    """Return the schemas of fields of a table, in Spark's JSON, by their names."""
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
