"""Snapshots of change capture beside bulk reads, and memory over a large transaction.

A table of TPC-H goes into Delta by the bulk reader, and by a snapshot that has rows, by the
transform Unwrap, or whole changes. All take turns; the first is the cold one, and medians are
of the five that follow. Then one transaction adds rows to a table that is followed into Delta:
the memory of the JVM, of the driver's Python and of all other processes of Headrace, each at
its peak, has to be the same for many rows as for few.

    python benchmarks/bench_change_scale.py [--scale 0.5] [--rows 500000 5000000]
"""

import argparse
import json
import statistics
from collections.abc import Mapping
from functools import partial

import psycopg
from deltalake import DeltaTable
from harness import Bench, Quiet, bench, machine, remove, save, timed
from large_file import Watch
from lineitem import Lineitem, run_psql, servers

from headrace.settings import load_settings

TURNS = 5
_UNWRAP = [{"type": "Unwrap"}]
_ROWS = """
INSERT INTO many SELECT n, 'name ' || n, (n % 100000) / 100.0::numeric(12,2),
  TIMESTAMPTZ '2020-01-01 00:00:00Z' + n * INTERVAL '1 second'
FROM generate_series((SELECT count(*) FROM many) + 1, (SELECT count(*) FROM many) + {rows}) n"""


def snapshots(run: Bench, sources: Mapping[str, str], scale: float) -> Mapping[str, object]:
    """Copy the table in each way, by turns; print and return the seconds."""
    figures = {}
    for name, url in sources.items():
        kind = name.lower().replace("mariadb", "mysql").replace("postgresql", "postgres")
        tables = {"connection.url": url, "table.include.list": "lineitem"}
        snapshot = {"connector": kind, "snapshot.mode": "initial_only", **tables}
        ways: Mapping[str, Mapping[str, object]] = {
            "bulk read": {"source": {"connector": "jdbc", **tables}},
            "snapshot, rows": {"source": snapshot, "transforms": _UNWRAP},
            "snapshot, changes": {"source": snapshot},
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(TURNS + 1):
            for way, definition in ways.items():
                target = run.target()
                sink = {"connector": "delta", "path": str(target)}
                seconds[way].append(timed(partial(run.run, {**definition, "sinks": [sink]})))
                rows = DeltaTable(target).to_pyarrow_dataset().count_rows()
                assert rows > 5_000_000 * scale, rows
                remove(target)
        bulk = seconds["bulk read"]
        for way, took in seconds.items():
            pairs = zip(took[1:], bulk[1:], strict=True)
            ratio = statistics.median(mine / theirs for mine, theirs in pairs)
            warm = statistics.median(took[1:])
            print(f"| {name}, {way} | {warm:.2f} | {took[0]:.2f} | {ratio:.2f} |", flush=True)
            figures[f"{name}, {way}"] = {"seconds": took, "of the bulk read's": ratio}
    return figures


def transactions(run: Bench, url: str, counts: list[int]) -> Mapping[str, object]:
    """Follow a transaction of each size; print and return the memory."""
    figures = {}
    columns = "id bigint PRIMARY KEY, name text, amount numeric(12,2), at timestamptz"
    run_psql(url, f"CREATE TABLE many ({columns})")
    target = run.target()
    source = {"connector": "postgres", "connection.url": url, "table.include.list": "many"}
    path = run.folder / "many.yaml"
    sink = {"connector": "delta", "path": str(target)}
    path.write_text(json.dumps({"name": "many", "source": source, "sinks": [sink]}))
    definitions = run.runtime.definitions([path])

    def follow() -> None:
        outcome = run.runtime.run(definitions, Quiet(), once=True)
        if outcome.failed:
            raise SystemExit(str(dict(outcome.errors)))

    follow()
    for rows in [min(counts), *counts]:  # the first run is the cold one
        run_psql(url, _ROWS.format(rows=rows), "CHECKPOINT")
        watch = Watch()
        seconds = timed(follow)
        peaks = {kind: max(tenths) for kind, tenths in watch.stop().items()}
        memory = " | ".join(f"{peaks[kind]:,}" for kind in ("JVM", "driver", "workers"))
        print(f"| one of {rows:,} rows | {seconds:.1f} | {memory} |", flush=True)
        figures[f"transaction of {rows} rows"] = {"seconds": seconds, "peak_mib": peaks}
    with psycopg.connect(url) as connection:
        [made] = connection.execute("SELECT count(*) FROM many").fetchone() or [0]
    found = DeltaTable(target).to_pyarrow_dataset().count_rows()
    assert found == made, f"{found} changes of {made}"
    return figures


def main(scale: float, counts: list[int]) -> None:
    """Run both parts, and print and keep the figures."""
    log = {"log_bin": "log", "server_id": "1", "binlog_format": "ROW"}
    with servers(**log, binlog_row_metadata="FULL") as at, bench() as run:
        data = Lineitem(scale, load_settings().cache / "benchmarks")
        data.fill_postgresql(at.source)
        data.fill_mariadb(at.mariadb_source)
        print(f"lineitem at scale {scale} into Delta; {machine()}; the median of {TURNS}\n")
        print("| way | seconds | cold | of the bulk read's |\n|---|---|---|---|")
        sources = {"PostgreSQL": at.source, "MariaDB": at.mariadb_source}
        figures = {"scale": scale, **snapshots(run, sources, scale)}
        print("\n| transaction | seconds | JVM MiB | driver MiB | others MiB |")
        print("|---|---|---|---|---|")
        figures |= transactions(run, at.target, counts)
    save("change_scale", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--rows", type=int, nargs="+", default=[500_000, 5_000_000])
    given = parser.parse_args()
    main(given.scale, given.rows)
