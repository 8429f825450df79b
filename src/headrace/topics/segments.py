"""The rows of a topic's table: their columns, and segments, in which many files are rewritten.

A segment's name contains its range of versions, so that the table's list of files is also the
list of its segments. In a segment, the column ``version`` has each row's original version and
``part`` the number of the file within that version; both are null in all other files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sdk import Schema
from headrace.sdk.arrow import conform
from headrace.sdk.delta import AddedFile
from headrace.sdk.location import Location

VERSION = "version"
PART = "part"
HIDDEN = {VERSION: Schema.int64(optional=True), PART: Schema.int32(optional=True)}
"""The columns of a topic's table that are not part of its rows."""

FOLDER = "data/segments"
_NAME = re.compile(FOLDER + r"/(\d{20})-(\d{20})-[0-9a-f]+\.parquet\Z")
_READ_BYTES = 8 * 2**20
_GROUP_BYTES = 32 * 2**20
"""Rows are buffered up to this row group size: the most memory that a rewrite needs."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file with all rows of the versions from ``first`` to ``last``."""

    first: int
    last: int
    file: AddedFile

    def covers(self, version: int) -> bool:
        """Return whether ``version`` is in the segment's range."""
        return self.first <= version <= self.last


def segments_of(files: Iterable[AddedFile]) -> list[Segment]:
    """Return the segments among the files of a table, oldest first."""
    found = ((_NAME.match(file.path), file) for file in files)
    segments = (Segment(int(name[1]), int(name[2]), file) for name, file in found if name)
    return sorted(segments, key=lambda segment: segment.first)


@dataclass(frozen=True, slots=True)
class TopicFile:
    """A file to read, with the version that added its rows.

    Args:
        version: The version; for a segment, the last one.
        part: The number of the file within the version.
        segment: The segment, if the file is one; its rows contain version and part.
    """

    file: AddedFile
    version: int
    part: int = 0
    segment: Segment | None = None

    @property
    def first(self) -> int:
        """The oldest version of its rows."""
        return self.segment.first if self.segment else self.version


def stored_schema(rows: Schema) -> Schema:
    """Return the schema of the table for rows of a schema."""
    fields = {field.name: field.schema for field in rows.fields}
    return Schema.struct({**fields, **HIDDEN})


def rows_schema(stored: Schema) -> Schema:
    """Return the schema of the rows in a table of a schema."""
    fields = {f.name: f.schema for f in stored.fields if f.name not in HIDDEN}
    return Schema.struct(fields)


def read_batches(
    table: Location, file: TopicFile, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows with the table's stored schema, version and part filled in."""
    with (
        (table / file.file.path).open_input() as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet,
    ):
        for batch in parquet.iter_batches(batch_size=_batch_rows(parquet.metadata)):
            rows = conform(batch, schema)
            yield rows if file.segment else _numbered(rows, file)


def write_segment(table: Location, files: Sequence[TopicFile], schema: pa.Schema) -> Segment:
    """Write the rows of files, in order, to a new segment that is not committed yet.

    Memory use is bounded regardless of the files' sizes, except for the size of a single row.
    """
    first, last = files[0].first, files[-1].version
    name = f"{FOLDER}/{first:020d}-{last:020d}-{uuid.uuid4().hex}.parquet"
    path = table / name
    batches = (batch for file in files for batch in read_batches(table, file, schema))
    rows = 0
    try:
        with path.open_output() as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for group in _groups(batches):
                    writer.write_table(group)
                    rows += group.num_rows
            size_bytes = file.tell()
    except BaseException:
        path.delete()
        raise
    return Segment(first, last, AddedFile(name, size_bytes, rows))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _batch_rows(footer: pq.FileMetaData) -> int:
    """Return how many rows of a file to read at once: a row may have several megabytes."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    widest = max((g.total_byte_size // max(g.num_rows, 1) for g in groups), default=0)
    return max(1, min(65_536, _READ_BYTES // max(widest, 1)))


def _numbered(rows: pa.RecordBatch, file: TopicFile) -> pa.RecordBatch:
    for name, number in ((VERSION, file.version), (PART, file.part)):
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index)
        column = pa.repeat(pa.scalar(number, field.type), rows.num_rows)
        rows = rows.set_column(index, field, column)
    return rows


@dataclass(frozen=True, slots=True)
class Place:
    """A place in one topic: after ``version``, or after its first ``index`` files.

    ``index`` None means after the whole version, which equals the next version with index 0.
    """

    version: int
    index: int | None = None

    @property
    def order(self) -> tuple[int, float]:
        return self.version, float("inf") if self.index is None else self.index

    def sql(self) -> str:
        """Return SQL that is true for the numbered rows before the place."""
        if self.index is None:
            return f"{VERSION} <= {self.version}"
        within = f"{VERSION} = {self.version} AND {PART} < {self.index}"
        return f"({VERSION} < {self.version} OR {within})"

    def before(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the mask of the numbered rows before the place."""
        version, part = rows.column(VERSION), rows.column(PART)
        if self.index is None:
            return pc.less_equal(version, self.version)
        within = pc.and_(pc.equal(version, self.version), pc.less(part, self.index))
        return pc.or_(pc.less(version, self.version), within)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows after ``start``, up to ``end``.

    Only segments can contain other rows, so rows without a version are in the range. Can be
    pickled and used on executors.
    """

    start: Place
    end: Place

    def sql(self) -> str:
        """Return SQL that is true for the rows of the range, in any of its files."""
        return f"{VERSION} IS NULL OR (NOT {self.start.sql()} AND {self.end.sql()})"

    def read(
        self, path: Location, columns: Sequence[str], batch_size: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a file's rows that are in the range, in order.

        Omits columns that the file lacks. Skips row groups that are outside of the range.
        """
        with (
            path.open_input() as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        ):
            names = file.schema_arrow.names
            present = [name for name in columns if name in names]
            if VERSION not in names:
                yield from file.iter_batches(batch_size, columns=present)
                return
            groups = [n for n in range(file.num_row_groups) if self._meets(file.metadata, n)]
            numbered = list(dict.fromkeys([*present, VERSION, PART]))
            for rows in file.iter_batches(batch_size, row_groups=groups, columns=numbered):
                inside = pc.and_not(self.end.before(rows), self.start.before(rows))
                chosen = rows.filter(pc.fill_null(inside, fill_value=True))
                if chosen.num_rows:
                    yield chosen.select(present)

    def _meets(self, footer: pq.FileMetaData, group: int) -> bool:
        chunks = (footer.row_group(group).column(n) for n in range(footer.num_columns))
        found = next(chunk for chunk in chunks if chunk.path_in_schema == VERSION)
        versions = found.statistics
        if versions is None or not versions.has_min_max:
            return True
        return bool(versions.min <= self.end.version and versions.max >= self.start.version)


HEADERS = Schema.array(
    Schema.struct(
        {
            "key": Schema.string(optional=True),
            "value": Schema.string(optional=True),
            "type": Schema.string(optional=True),
        },
        optional=True,
    ),
    optional=True,
)
"""Headers keep their order and may repeat; a value is text, with the name of its type."""

PACKED = "payload"
"""The column that only packed topics have."""


def topic_row_schema(value: Schema, key: Schema | None) -> Schema:
    """Return the table's schema for records of these schemas.

    ``offset`` orders the rows within a version.
    """
    fields = {} if key is None else {"key": key.replaced(optional=True)}
    fields |= {
        "value": value.replaced(optional=True),
        "headers": HEADERS,
        "timestamp": Schema.timestamp(optional=True),
        "offset": Schema.int64(optional=True),
    }
    return Schema.struct(fields)


def packed_row_schema() -> Schema:
    """Return the table's schema for packed batches, see ``headrace.dataplane.packed``."""
    return Schema.struct(
        {
            "stream": Schema.string(optional=True),
            "schema_id": Schema.int64(optional=True),
            "schema": Schema.bytes(optional=True),
            "rows": Schema.int64(optional=True),
            PACKED: Schema.bytes(optional=True),
            "offset": Schema.int64(optional=True),
        }
    )


def position_sql(files: Sequence[TopicFile]) -> str:
    """Return the SQL of ``position``, an array that orders all rows of these files."""
    single = [file for file in files if file.segment is None]
    versions = sorted({file.version for file in single})
    if not versions:
        return f"array({VERSION}, offset)"
    if len(versions) == 1:
        version = f"{versions[0]}L"
    else:
        names = ", ".join("'" + file.file.path.rsplit("/", 1)[-1] + "'" for file in single)
        numbers = ", ".join(f"{file.version}L" for file in single)
        by_name = f"map_from_arrays(array({names}), array({numbers}))"
        version = f"element_at({by_name}, _metadata.file_name)"
    return f"array(coalesce({VERSION}, {version}), offset)"


_TEXT = Schema.string(optional=True)

CAUSE = Schema.struct(
    {
        "connector": _TEXT,
        "task": Schema.int32(optional=True),
        "batch": Schema.int64(optional=True),
        "rejected": Schema.timestamp(optional=True),
        "stage": _TEXT,
        "class": _TEXT,
        "exception": _TEXT,
        "message": _TEXT,
        "stacktrace": _TEXT,
        "topic": _TEXT,
        "partition": Schema.int32(optional=True),
        "position": _TEXT,
        "key_schema": _TEXT,
        "value_schema": _TEXT,
        "raw": Schema.bytes(optional=True),
        "sink": Schema.int32(optional=True),
        "sink_name": _TEXT,
    },
    optional=True,
)
"""Why a record was rejected, and the data to replay it exactly.

``topic``, ``partition`` and ``position`` (JSON) are those of the original record, and
``rejected`` is when its batch began. The key and the value are JSON, and the schemas (in the
format of ``schema_to_json``) contain their types. If the input could not become a record,
``raw`` has the input's bytes, and the value shows them as text. ``sink`` is the number of the
only sink that refused the record; null if no sink received the record. ``sink_name`` is that
sink's name in marks, which does not change when sinks are added or removed.
"""

LETTERS = Schema.struct(
    {f.name: f.schema for f in topic_row_schema(_TEXT, _TEXT).fields} | {"cause": CAUSE}
)
"""The rows of a dead-letter topic: the columns of any topic, and ``cause``."""

_PREFIX = "__connect.errors."

CONTEXT = {
    "topic": "topic",
    "partition": "partition",
    "offset": "position",
    "connector.name": "connector",
    "task.id": "task",
    "stage": "stage",
    "class.name": "class",
    "exception.class.name": "exception",
    "exception.message": "message",
    "exception.stacktrace": "stacktrace",
}
"""Kafka Connect's context headers, without their prefix, and the field of each."""


def letter_headers() -> dict[str, str]:
    """Return the keys of the context headers, in Kafka Connect's order, and their fields."""
    return {_PREFIX + name: field for name, field in CONTEXT.items()}
