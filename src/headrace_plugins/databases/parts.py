"""Splits reads of a database into parts, one per Spark partition."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.sources import ArrowParts
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import quote
from headrace.sdk.tables import TableRows
from headrace_plugins.databases.catalog import rows_schema
from headrace_plugins.databases.database import DatabaseError, Select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.cursors import KeyRange, Rows
    from headrace_plugins.databases.database import Database, Rejected, Session

PLUGIN = "headrace_plugins.connectors.jdbc.source.JdbcSource"
"""The name of the database source in dead letters."""


_SMALL = 100_000
"""The maximum number of rows that one query reads without a split."""


@dataclass(frozen=True)
class Part:
    """The selects that one Spark partition reads, one after the other. Pickled.

    Args:
        database: The database.
        selects: The selects.
        nulls: See ``Database.read``.
        rate: The maximum rows per second; None for no limit.
    """

    database: Database
    selects: tuple[Select, ...]
    nulls: bool = False
    rate: float | None = None

    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        """Yield the rows, on an executor, limited by the rate."""
        began, read = time.monotonic(), 0
        for select in self.selects:
            with _reading(select):
                for batch, rejected in self.database.read(select, nulls=self.nulls):
                    yield batch, rejected
                    read += batch.num_rows + len(rejected)
                    if self.rate is not None:
                        ahead = read / self.rate - (time.monotonic() - began)
                        if ahead > 0:
                            time.sleep(ahead)


def _read_raw(name: str, part: Part) -> Iterator[bytes]:
    # Each select is a whole file of the format, so a raw part can have only one.
    [select] = part.selects
    with _reading(select):
        yield from part.database.raw(select.columns)[name](select)


@contextmanager
def _reading(select: Select) -> Iterator[None]:
    """Raise a database's error about a statement as SourceError.

    A batch that fails with SourceError is planned again, unless a target has some of it.
    """
    try:
        yield
    except (ConfigError, DatabaseError) as error:
        raise SourceError(
            problem=f"Reading {select.source}: {error.problem}",
            fix=f"{error.fix} If the table or a column was dropped or renamed: restore it, or "
            "exclude the table with table.exclude.list.".strip(),
        ) from error


def parts_of(
    database: Database,
    selects: Sequence[Select],
    connections: int,
    *,
    nulls: bool = False,
    rows_per_second: int | None = None,
) -> list[Part]:
    """Return parts that read selects with at most ``connections`` connections."""
    groups = [tuple(selects[number::connections]) for number in range(connections)]
    groups = [group for group in groups if group]
    rate = None if rows_per_second is None else rows_per_second / len(groups)
    return [Part(database, group, nulls, rate) for group in groups]


def arrow_parts(
    database: Database,
    schema: Schema,
    selects: Sequence[Select],
    *,
    connections: int,
    nulls: bool = False,
    rows_per_second: int | None = None,
) -> ArrowParts:
    """Return the parts of selects of the same columns, with at most ``connections``."""
    parts = parts_of(
        database, selects, connections, nulls=nulls, rows_per_second=rows_per_second
    )
    raw: dict[str, Callable[[Part], Iterator[bytes]]] = {}
    if not nulls and rows_per_second is None and all(len(p.selects) == 1 for p in parts):
        raw = {name: partial(_read_raw, name) for name in database.raw(selects[0].columns)}
    return ArrowParts(
        schema=schema,
        parts=parts,
        read=Part.read,
        plugin=PLUGIN,
        raw=raw,
    )


def divided(
    session: Session,
    rows: Rows,
    span: KeyRange,
    *,
    table: Table | None,
    has_snapshot: bool,
    split_rows: int,
    connections: int,
    parallel: int,
) -> list[str]:
    """Return conditions that split a range of rows into parts for parallel reads.

    Args:
        session: A session for queries about the range.
        rows: The table, or the rows of a query.
        span: The range.
        table: The catalog's description of the table; None for a query.
        has_snapshot: Whether all parts see the same snapshot of the database.
        split_rows: The approximate number of rows in a part.
        connections: The number of concurrent connections.
        parallel: The minimum number of parts.
    """
    is_whole = span.after is None and span.upto is None
    count = rows.count if is_whole and not span.more else None
    if count is None:
        most = split_rows * connections
        count = span.count(session, rows, most) if table is not None else 0
    if count <= _SMALL:
        return [span.where(rows)]
    wanted = max(-(-count // split_rows), parallel)
    if is_whole and table is not None and has_snapshot:
        ranges = rows.database.physical_ranges(session, table, wanted)
        if ranges:
            return [f"{span.more} AND {each}" if span.more else each for each in ranges]
    if not span.terms:
        return [span.where(rows)]
    return [each.where(rows) for each in span.divided(session, rows, wanted)]


def spark_records(rows: DataFrame, schema: Schema, most: int | None = None) -> DataFrame:
    """Return rows that Spark reads as records of a schema, at most ``most`` per second."""
    if most is not None:
        rate = most / max(1, rows.rdd.getNumPartitions())
        rows = rows.mapInArrow(partial(_paced, rate), rows.schema)
    described = T.StructType.fromJson(to_spark_json(Schema.struct({"value": schema})))
    value = described["value"]
    assert isinstance(value.dataType, T.StructType)
    fields = [F.col(quote(f.name)).alias(f.name, metadata=f.metadata) for f in value.dataType]
    return rows.select(F.struct(*fields).alias("value", metadata=value.metadata))


def _paced(rate: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    began, read = time.monotonic(), 0
    for batch in batches:
        yield batch
        read += batch.num_rows
        time.sleep(max(0, read / rate - (time.monotonic() - began)))


def table_rows(database: Database, table: Table, stream: str, connections: int) -> TableRows:
    """Return the current rows of a table, for ``verify``."""
    return TableRows(
        stream=stream,
        title=str(table.name),
        schema=table.schema(database.kind),
        key=table.key,
        read=all_rows(database, table, connections),
        read_at_once=all_rows(database, table, 1),  # one statement
    )


def all_rows(
    database: Database,
    table: Table,
    connections: int,
    names: Mapping[str, str] | None = None,
) -> Callable[[SparkSession], ArrowParts | DataFrame]:
    """Return a function that reads all current rows of a table.

    ``names`` maps columns to other names.
    """
    source, named = database.path(table.name), names or {}
    columns = tuple(replace(c, name=named.get(c.name, c.name)) for c in table.columns)
    pairs = zip(table.columns, columns, strict=True)
    listed = ", ".join(
        f"{database.quote(a.name)} AS {database.quote(b.name)}" for a, b in pairs
    )

    def select(where: str) -> Select:
        if columns == table.columns:
            return Select(columns=columns, source=source, where=where)
        condition = f" WHERE {where}" if where else ""
        rows = f"SELECT {listed} FROM {source}{condition}"  # noqa: S608 - quoted names
        return Select(columns=columns, source=f"({rows}) q")

    def read(spark: SparkSession) -> ArrowParts | DataFrame:
        with database.session() as session:
            ranges = database.physical_ranges(session, table, connections) or [""]
        selects = [select(each) for each in ranges]
        if database.by_spark:
            return database.frame(spark, selects)
        schema = rows_schema(database.kind, columns)
        return arrow_parts(database, schema, selects, connections=connections)

    return read
