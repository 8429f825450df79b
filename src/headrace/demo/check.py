"""Checks what the demo wrote against the CSV files, with DuckDB.

Nothing here calls Headrace: DuckDB reads the sources and the targets, and works out
from the sources what the pipelines should have done. Only which Parquet files make up
a Delta table is asked of the ``deltalake`` package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import duckdb
from deltalake import DeltaTable

from headrace.demo.data import TABLES
from headrace.model import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.demo.expected import Move, Target


@dataclass(frozen=True)
class Finding:
    """What was found in one target.

    Args:
        target: Its name.
        rows: How many rows it holds.
        columns: How many columns.
        checksum: A checksum over all its rows, in no order.
        differences: What is not as it should be; empty when all is.
    """

    target: str
    rows: int
    columns: int
    checksum: str
    differences: Sequence[str]


class Checker:
    """Compares targets with the CSV files they were made from. Use it in a ``with``."""

    def __init__(self, data: Path, demo: Path) -> None:
        """Read the CSV files in ``data`` and the targets in the folder ``demo``."""
        self._demo = demo
        self._duck = duckdb.connect()
        for table in TABLES:
            file = _text(str(data / f"{table}.csv"))
            options = "header = true, all_varchar = true, nullstr = 'NA'"
            self._duck.execute(
                f"CREATE VIEW {table} AS SELECT * FROM read_csv({file}, {options})"  # noqa: S608 - names of our own
            )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close DuckDB."""
        self._duck.close()

    def target(self, target: Target) -> Finding:
        """Compare one target: rows, columns, and checksums of each and of whole rows."""
        held = self._held(target)
        types = self._types(held)
        should = set(self._types(target.rows))
        differences = [f"column {name} is missing" for name in sorted(should - set(types))]
        differences += [f"column {name} is too many" for name in sorted(set(types) - should)]
        shared = {name: kind for name, kind in types.items() if name in should}
        found = self._sums(held, shared)
        wanted = self._sums(target.rows, shared)
        for part, value in found.items():
            if value != wanted[part]:
                differences.append(f"{part}: {value:,} instead of {wanted[part]:,}")
        checksum = f"{found['checksum of rows'] % 2**64:016x}"
        return Finding(target.name, found["rows"], len(types), checksum, differences)

    def move(self, move: Move) -> Counts:
        """Return the counts that a connector should have had."""
        filtered, rejected = f"({move.filtered})", f"({move.rejected})"
        read, dropped, refused = self._row(
            f"SELECT count(*), count_if{filtered}, count_if{rejected} FROM {move.table}"  # noqa: S608 - names of our own
        )
        return Counts(
            read=read, written=read - dropped - refused, filtered=dropped, rejected=refused
        )

    def lines(self, table: str) -> int:
        """Return how many rows a CSV file holds."""
        return self._row(f"SELECT count(*) FROM {table}")[0]  # noqa: S608 - names of our own

    def _held(self, target: Target) -> str:
        folder = target.folder(self._demo)
        if target.delta:
            files = DeltaTable(folder).file_uris()
        else:
            files = [str(path) for path in sorted(folder.rglob("*.parquet"))]
        names = ", ".join(_text(file) for file in files)
        parts = f"hive_partitioning = {not target.delta}"
        return f"SELECT {target.columns} FROM read_parquet([{names}], {parts})"  # noqa: S608 - names of our own

    def _types(self, rows: str) -> Mapping[str, str]:
        found = self._duck.execute(f"DESCRIBE {rows}").fetchall()
        return {row[0]: row[1] for row in found}

    def _sums(self, rows: str, types: Mapping[str, str]) -> dict[str, int]:
        """Return the number of rows, and sums of hashes: they need no order.

        Both sides are cast to the target's types first: the CSV files hold only text.
        """
        cast = {name: f'CAST("{name}" AS {kind})' for name, kind in types.items()}
        sums = {"rows": "count(*)"}
        sums |= {f"nulls in {name}": f"count_if({sql} IS NULL)" for name, sql in cast.items()}
        sums |= {f"checksum of {name}": f"sum(hash({sql}))" for name, sql in cast.items()}
        sums["checksum of rows"] = f"sum(hash({', '.join(cast.values())}))"
        row = self._row(f"SELECT {', '.join(sums.values())} FROM ({rows})")  # noqa: S608 - names of our own
        return dict(zip(sums, row, strict=True))

    def _row(self, sql: str) -> list[int]:
        rows = self._duck.execute(sql).fetchall()
        return [int(value or 0) for value in rows[0]]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
