"""Places in a topic, and the rows between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.topics.segments import PART, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.sdk.location import Location


@dataclass(frozen=True, slots=True)
class Place:
    """A place in one topic: behind ``version``, or behind its first ``index`` files.

    ``index`` None means the whole version. A version is then the same as the next one
    with index 0.
    """

    version: int
    index: int | None = None

    @property
    def order(self) -> tuple[int, float]:
        """Return what places are sorted by."""
        return self.version, float("inf") if self.index is None else self.index

    def sql(self) -> str:
        """Return SQL that holds for the numbered rows before the place."""
        if self.index is None:
            return f"{VERSION} <= {self.version}"
        within = f"{VERSION} = {self.version} AND {PART} < {self.index}"
        return f"({VERSION} < {self.version} OR {within})"

    def before(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which of the numbered rows are before the place."""
        version, part = rows.column(VERSION), rows.column(PART)
        if self.index is None:
            return pc.less_equal(version, self.version)
        within = pc.and_(pc.equal(version, self.version), pc.less(part, self.index))
        return pc.or_(pc.less(version, self.version), within)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows behind ``start``, up to ``end``.

    Only a segment can hold others as well, so rows without a version are inside. It can
    be pickled and used on executors.
    """

    start: Place
    end: Place

    def sql(self) -> str:
        """Return SQL that holds for the rows of the range, in any of its files."""
        return f"{VERSION} IS NULL OR (NOT {self.start.sql()} AND {self.end.sql()})"

    def read(
        self, path: Location, columns: Sequence[str], batch_size: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a file's rows that are in the range, in order.

        Columns that the file lacks are left out. Rows that are far outside are not read.
        """
        with (
            path.open_input() as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        ):
            names = file.schema_arrow.names
            wanted = [name for name in columns if name in names]
            if VERSION not in names:
                yield from file.iter_batches(batch_size, columns=wanted)
                return
            groups = [n for n in range(file.num_row_groups) if self._meets(file.metadata, n)]
            numbered = list(dict.fromkeys([*wanted, VERSION, PART]))
            for rows in file.iter_batches(batch_size, row_groups=groups, columns=numbered):
                inside = pc.and_not(self.end.before(rows), self.start.before(rows))
                kept = rows.filter(pc.fill_null(inside, fill_value=True))
                if kept.num_rows:
                    yield kept.select(wanted)

    def _meets(self, footer: pq.FileMetaData, group: int) -> bool:
        chunks = (footer.row_group(group).column(n) for n in range(footer.num_columns))
        found = next(chunk for chunk in chunks if chunk.path_in_schema == VERSION)
        versions = found.statistics
        if versions is None or not versions.has_min_max:
            return True
        return bool(versions.min <= self.end.version and versions.max >= self.start.version)
