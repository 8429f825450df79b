"""How many changes a second Debezium's engine reads from a slot that has them already.

    python benchmarks/debezium_rate.py [--changes 300000] [--runs 5]

What measures another reader makes the same history by `prepare_history`, and reads from a copy
of its slot each time (`copied_slot`).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
from harness import machine
from tests.debezium.engine import DebeziumProcess, connection_properties
from tests.postgresql_server import PostgresqlServer

from headrace.settings import Settings, load_settings

CHANGES = 300_000
RUNS = 5
SECONDS = 300
TABLE = "accounts"
PUBLICATION = "bench"
SLOT = "bench"
DEFAULTS = {"poll.interval.ms": "500"}
TUNED = {**DEFAULTS, "max.queue.size": "65536"}
"""What was the quickest of what was tried: larger batches, shorter polls, fewer threads,
another order, and other collectors of garbage were no quicker."""
VARIANTS: dict[str, tuple[str, Mapping[str, str]]] = {
    "JSON, its defaults": ("json", DEFAULTS),
    "JSON, longer queue": ("json", TUNED),
    "Connect's structs, longer queue": ("connect", TUNED),
}

# As pgbench's table of accounts. Of ten changes four insert a row, five update one by its key,
# and one deletes the oldest; a transaction has 1 to 100 of them.
_HISTORY = f"""
CREATE TABLE {TABLE} (
  aid int4 PRIMARY KEY, bid int4 NOT NULL, abalance int4, filler char(84)
);
INSERT INTO {TABLE} SELECT n, n % 10, 0, 'made before' FROM generate_series(1, 1000) n;
CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE};
CREATE PROCEDURE make_changes(changes int) LANGUAGE plpgsql AS $$
DECLARE
  oldest int := 1;
  newest int := 1000;
  left_in_transaction int := 1;
  chosen float8;
  account int;
BEGIN
  PERFORM setseed(0.5);
  FOR change IN 1..changes LOOP
    chosen := random();
    IF chosen < 0.4 THEN
      newest := newest + 1;
      INSERT INTO {TABLE} VALUES (newest, newest % 10, 0, 'account ' || newest);
    ELSIF chosen < 0.9 THEN
      account := oldest + floor(random() * (newest - oldest + 1));
      UPDATE {TABLE} SET abalance = change WHERE aid = account;
    ELSE
      DELETE FROM {TABLE} WHERE aid = oldest;
      oldest := oldest + 1;
    END IF;
    left_in_transaction := left_in_transaction - 1;
    IF left_in_transaction = 0 THEN
      COMMIT;
      left_in_transaction := 1 + floor(random() * 100);
    END IF;
  END LOOP;
END $$;
"""  # noqa: S608 - names are made here


@dataclass(frozen=True)
class Prepared:
    """A slot with changes that nobody has read.

    Args:
        dsn: Where the database is.
        changes: How many there are.
        slot: The slot, of the plugin pgoutput; it is to be copied, not read.
        publication: What has the table.
        table: The table, in the schema public.
    """

    dsn: str
    changes: int
    slot: str = SLOT
    publication: str = PUBLICATION
    table: str = TABLE


@dataclass(frozen=True)
class Rate:
    """What one reading took.

    Args:
        changes: How many were read.
        streaming_s: Seconds from when the first was handed over until the last was.
        whole_s: Seconds from the start of the process until the last was handed over.
        cpu_s: Seconds of processor time that the JVM took for all of it; PostgreSQL's own are
            not in it.
    """

    changes: int
    streaming_s: float
    whole_s: float
    cpu_s: float


def prepare_history(dsn: str, changes: int = CHANGES) -> Prepared:
    """Make a table, a publication, a slot and then the changes, in an empty database.

    It is the same each time. The server needs ``wal_level=logical``.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_HISTORY)
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        connection.execute("SET synchronous_commit = off")
        connection.execute("CALL make_changes(%s::int)", [changes])
        connection.execute("CHECKPOINT")
    return Prepared(dsn, changes)


def drop_slot(prepared: Prepared) -> None:
    """Drop the slot that was made with the changes."""
    with psycopg.connect(prepared.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [prepared.slot])


_copies = count()


@contextmanager
def copied_slot(prepared: Prepared) -> Iterator[str]:
    """Give a slot that has all of the changes, for as long as this lasts."""
    name = f"{prepared.slot}_{next(_copies)}"
    with psycopg.connect(prepared.dsn, autocommit=True) as connection:
        copy = "SELECT pg_copy_logical_replication_slot(%s, %s)"
        connection.execute(copy, [prepared.slot, name])
        try:
            yield name
        finally:
            active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            while connection.execute(active, [name]).fetchone() == (True,):
                time.sleep(0.05)
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


def debezium_rate(
    prepared: Prepared,
    *,
    handed: str = "json",
    properties: Mapping[str, str] | None = None,
    settings: Settings | None = None,
) -> Rate:
    """Have Debezium read the changes once, in a JVM of its own.

    Args:
        prepared: What it reads.
        handed: ``json``, texts without schemas, or ``connect``, which are the structs that
            Kafka Connect would get, and cost less.
        properties: More of its settings.
        settings: Where Java and the cache of jars are.
    """
    with tempfile.TemporaryDirectory() as folder, copied_slot(prepared) as slot:
        given = {
            **connection_properties(
                prepared.dsn,
                Path(folder),
                snapshot_mode="no_data",
                slot_name=slot,
                publication_name=prepared.publication,
                publication_autocreate_mode="disabled",
                table_include_list=f"public.{prepared.table}",
                converter_schemas_enable="false",
                offset_flush_interval_ms="60000",
            ),
            **(properties or {}),
        }
        began = time.perf_counter()
        with DebeziumProcess(
            given,
            settings=settings or load_settings(),
            handed=handed,
            count=prepared.changes,
        ) as engine:
            by = time.monotonic() + SECONDS
            while "events" not in (line := engine.line(by) or {"events": 0}):
                pass
            whole, cpu = time.perf_counter() - began, engine.cpu_seconds()
    if line["events"] != prepared.changes:
        message = f"Debezium has read {line['events']} changes."
        raise RuntimeError(message)
    return Rate(line["events"], (line["last_ns"] - line["first_ns"]) / 1e9, whole, cpu)


def main(changes: int, runs: int) -> None:
    """Measure each variant, in turn, and print the medians."""
    settings = load_settings()
    with PostgresqlServer.running(wal_level="logical") as server, server.database() as dsn:
        prepared = prepare_history(dsn, changes)
        found: dict[str, list[Rate]] = {name: [] for name in VARIANTS}
        for _ in range(runs):
            for name, (handed, properties) in VARIANTS.items():
                rate = debezium_rate(
                    prepared, handed=handed, properties=properties, settings=settings
                )
                found[name].append(rate)
    print(f"{changes:,} changes, medians of {runs}; {machine()}")
    print("| Debezium | rows/s | whole, rows/s | whole | CPU | spread of rows/s |")
    print("|---|---|---|---|---|---|")
    for name, rates in found.items():
        streaming = sorted(changes / rate.streaming_s for rate in rates)
        whole = statistics.median(rate.whole_s for rate in rates)
        print(
            f"| {name} | {statistics.median(streaming):,.0f} | {changes / whole:,.0f} "
            f"| {whole:.1f} s | {statistics.median(rate.cpu_s for rate in rates):.1f} s "
            f"| {streaming[0]:,.0f} to {streaming[-1]:,.0f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    main(arguments.changes, arguments.runs)
