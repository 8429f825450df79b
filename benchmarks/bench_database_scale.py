"""What copies of databases take as tables grow in rows and in number.

The memory of the JVM, of the driver's Python and of all Python workers, each at its peak, for
two numbers of rows in one process: it is to be the same. Then a database of many small tables
in one connector, whose first run makes every table of the target.

    python benchmarks/bench_database_scale.py [--rows 1000000 20000000] [--tables 1000]
"""

# ruff: noqa: S608 - names and numbers of our own

import argparse
from collections.abc import Mapping
from functools import partial

import psycopg
from harness import Bench, bench, machine, remove, save, timed
from large_file import Watch
from lineitem import run_psql, servers

ROWS_OF_TABLE = 1_000
_ROWS = """
CREATE TABLE rows_{rows} AS
SELECT n AS id, 'name ' || n AS name, (n % 100000) / 100.0::numeric(12,2) AS amount,
  n * 0.5::float8 AS score, DATE '2020-01-01' + n % 1000 AS day,
  TIMESTAMPTZ '2020-01-01 00:00:00Z' + n * INTERVAL '1 second' AS at
FROM generate_series(1, {rows}) n"""


def main(counts: list[int], tables: int) -> None:
    """Run both parts, and print and keep the figures."""
    figures: dict[str, object] = {}
    with servers() as at, bench() as run:
        print(f"{machine()}\n\n| copy | rows | seconds | JVM | driver | workers |")
        print("|---|---|---|---|---|---|")
        for rows in counts:
            run_psql(at.source, _ROWS.format(rows=rows), "VACUUM ANALYZE")
        targets: Mapping[str, dict[str, object]] = {
            "to Parquet": {
                "connector": "file",
                "path": str(run.folder / "files"),
                "format": "parquet",
            },
            "to PostgreSQL": {
                "connector": "postgres",
                "connection.url": at.target,
                "schema.save.mode": "recreate",
            },
        }
        for title, sink in targets.items():
            for rows in [min(counts), *counts]:  # the first run is the cold one
                watch = Watch()
                seconds = timed(partial(copy, run, at.source, f"rows_{rows}", sink))
                peaks = {kind: max(tenths) for kind, tenths in watch.stop().items()}
                memory = " | ".join(f"{peaks[kind]:,}" for kind in ("JVM", "driver", "workers"))
                print(f"| {title} | {rows:,} | {seconds:.1f} | {memory} |", flush=True)
                figures[f"{title}, {rows} rows"] = {"seconds": seconds, "peak_mib": peaks}
                remove(run.folder / "files")
        make_tables(at.source, tables)
        first = timed(partial(copy, run, at.source, "small_*", targets["to PostgreSQL"]))
        with psycopg.connect(at.target) as connection:
            [[found]] = connection.execute(
                "SELECT count(*) FROM pg_catalog.pg_class "
                "WHERE relkind = 'r' AND relname LIKE 'small%'"
            ).fetchall()
        assert found == tables, f"{found} of {tables} tables have arrived"
        print(f"\n{tables:,} tables of {ROWS_OF_TABLE:,} rows: {first:.1f} s", flush=True)
        figures["tables"] = {"tables": tables, "seconds": first}
    save("database-scale", figures)


def copy(run: Bench, source: str, table: str, sink: Mapping[str, object]) -> None:
    """Copy what is in the tables of that name."""
    tables = {
        "connector": "jdbc",
        "connection.url": source,
        "table.include.list": table,
    }
    run.run({"source": tables, "sinks": [dict(sink)]})


def make_tables(url: str, tables: int) -> None:
    """Make small tables with a key each."""
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(tables):
            connection.execute(
                f"CREATE TABLE small_{number} AS SELECT n AS id, 'name ' || n AS name "
                f"FROM generate_series(1, {ROWS_OF_TABLE}) n".encode()
            )
            connection.execute(f"ALTER TABLE small_{number} ADD PRIMARY KEY (id)".encode())
        connection.execute("ANALYZE")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--tables", type=int, default=1_000)
    given = parser.parse_args()
    main(given.rows, given.tables)
