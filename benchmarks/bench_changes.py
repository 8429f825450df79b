"""How fast changes of PostgreSQL are followed: read and decoded, and end to end.

Everyone reads the same slot of changes that were made before: of ten changes four insert a row,
five update one by its key, one deletes one, in transactions of 1 to 100. Read and decoded are
300,000 records in Debezium's envelope, as Arrow here and as Debezium's embedded engine hands
them over there, from the first to the last. End to end is a whole run of a definition in a warm
runtime, with the start of the process that reads, over five times as many. All take turns; the
first is the cold one, and medians are of five that follow.

    python benchmarks/bench_changes.py [--changes 300000] [--only "read"]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psycopg
from debezium_rate import (
    CHANGES,
    PUBLICATION,
    VARIANTS,
    Prepared,
    copied_slot,
    debezium_rate,
    drop_slot,
    prepare_history,
)
from deltalake import DeltaTable
from harness import Bench, bench, machine, save, timed
from tests.postgresql_server import PostgresqlServer

from headrace.settings import load_settings
from headrace_plugins.changes.envelope import Envelope, row_schema
from headrace_plugins.connectors.postgres.replication import to_lsn
from headrace_plugins.connectors.postgres.settings import PublicationMode
from headrace_plugins.connectors.postgres.slot_log import SlotLog
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.postgresql import Postgresql

TURNS = 5
TIMES = 5
"""How many times as many changes are copied end to end."""
OURS = "Headrace"


def read_changes(prepared: Prepared) -> float:
    """Read and decode all changes in this process; return the seconds from first to last."""
    with copied_slot(prepared) as slot, psycopg.connect(prepared.dsn) as connection:
        database = Postgresql(address_of(prepared.dsn))
        log = SlotLog(database, slot, PUBLICATION, PublicationMode.DISABLED, "bench")
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
        assert row is not None
        reader = log.reader(lambda _: True)()
        reader.start({"lsn": to_lsn(row[0])}, None)
        try:
            left, began = prepared.changes, 0.0
            while left > 0:
                piece = reader.read(1)
                if piece is None or not piece.runs:
                    continue
                began = began or time.perf_counter()
                for run in piece.runs:
                    rows, rejected = log.typed(run.shape.columns, run.rows)
                    assert not rejected
                    envelope = Envelope(
                        row_schema(database.kind, run.shape),
                        run.shape.key,
                        log.facts(run.shape.table),
                        log.details,
                    )
                    details = {name: rows.column(name) for name in log.details}
                    op, ts_us = rows.column("op"), rows.column("ts_us")
                    before, after = rows.column("before"), rows.column("after")
                    left -= envelope.records(op, before, after, ts_us, details).num_rows
            return time.perf_counter() - began
        finally:
            reader.stop()


def definition(
    prepared: Prepared, slot: str, sink: Mapping[str, str], *, unwraps: bool
) -> Mapping[str, object]:
    """Return a copy of a slot's changes into a sink."""
    source = {
        "connector": "postgres",
        "connection.url": prepared.dsn,
        "slot.name": slot,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "table.include.list": "accounts",
    }
    steps = {"transforms": [{"type": "Unwrap"}]} if unwraps else {}
    return {"source": source, **steps, "sinks": [sink]}


def copies(
    run: Bench, prepared: Prepared, target: str
) -> Mapping[str, tuple[Callable[[str], object], Callable[[], object]]]:
    """Return what copies a slot's changes, each with what checks and empties its target."""

    def delta(mode: str) -> tuple[Callable[[str], object], Callable[[], object]]:
        def copy(slot: str) -> None:
            path = run.target()
            found.append(path)
            sink = {"connector": "delta", "path": str(path), "mode": mode}
            if mode == "upsert":
                sink["delete.enabled"] = "true"
            run.run(definition(prepared, slot, sink, unwraps=mode == "upsert"))

        def check() -> None:
            rows = DeltaTable(found[-1]).to_pyarrow_dataset().count_rows()
            assert rows == (prepared.changes if mode == "append" else left), rows

        found: list[Path] = []
        return copy, check

    def upsert(slot: str) -> None:
        sink = {"connector": "postgres", "connection.url": target, "insert.mode": "upsert"}
        run.run(definition(prepared, slot, sink, unwraps=False))

    def check() -> None:
        with psycopg.connect(target, autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM accounts").fetchone()
            assert row == (left,), row
            connection.execute("DROP TABLE accounts")

    with psycopg.connect(prepared.dsn) as connection:
        # What was there before the slot is not among the changes, and may be left.
        query = "SELECT count(*) FROM accounts WHERE filler <> 'made before' OR abalance <> 0"
        row = connection.execute(query).fetchone()
        assert row is not None
        left = row[0]
    return {
        "to Delta, append": delta("append"),
        "to Delta, upsert": delta("upsert"),
        "to PostgreSQL, upsert": (upsert, check),
    }


def main(changes: int, only: str) -> None:
    """Measure everything, and print and keep the figures."""
    settings = load_settings()
    figures: dict[str, object] = {"changes": changes}

    def report(
        name: str, seconds: list[float], rival: list[float] | None = None, times: int = 1
    ) -> None:
        warm = statistics.median(seconds[1:])
        ratio = ""
        if rival is not None:
            pairs = zip(rival[1:], seconds[1:], strict=True)
            ratio = f"{statistics.median(theirs / mine for theirs, mine in pairs):.1f}"
        rate = times * changes / warm
        print(f"| {name} | {rate:,.0f} | {warm:.2f} | {seconds[0]:.2f} | {ratio} |")
        figures[name] = {"seconds": seconds, "ratio": ratio}

    with (
        PostgresqlServer.running(shared_buffers="512MB", max_wal_size="4GB") as server,
        server.database() as dsn,
        server.database() as many,
        server.database() as target,
        bench() as run,
    ):
        print(f"{changes:,} changes; {machine()}; the median of {TURNS}\n")
        print("| case | changes/s | seconds | cold | times as fast as Debezium |")
        print("|---|---|---|---|---|")
        if only in "read and decoded":
            prepared = prepare_history(dsn, changes)
            ours: list[float] = []
            theirs: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for _ in range(TURNS + 1):
                for name, (handed, properties) in VARIANTS.items():
                    rate = debezium_rate(
                        prepared, handed=handed, properties=properties, settings=settings
                    )
                    theirs[name].append(rate.streaming_s)
                ours.append(read_changes(prepared))
            for name, seconds in theirs.items():
                report(f"read and decoded: Debezium, {name}", seconds)
            best = min(theirs.values(), key=statistics.median)
            report(f"read and decoded: {OURS}", ours, best)
            drop_slot(prepared)  # names of slots are those of the whole server
        prepared = prepare_history(many, TIMES * changes)
        cases = {name: c for name, c in copies(run, prepared, target).items() if only in name}
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(TURNS + 1):
            for name, (copy, check) in cases.items():
                with copied_slot(prepared) as slot:
                    times[name].append(timed(partial(copy, slot)))
                check()
        for name, seconds in times.items():
            report(f"{OURS}, {name}", seconds, times=TIMES)
    save("changes", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--only", default="", help="run only cases whose names have this text")
    arguments = parser.parse_args()
    main(arguments.changes, arguments.only)
