"""How fast the binary log of MariaDB is read and decoded, in one process.

A million rows of four columns are added in one transaction, then all are changed, then a tenth
as many are added in transactions of their own. Each part is read from the log six times: the
first is the cold one, and medians are of the others. Changes a second of time are bounded by
the server that sends them, which shares the machine; those a second of the processor are not.

    python benchmarks/bench_binlog.py [--rows 1000000]
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psutil
from harness import save
from tests.mariadb_server import MariadbServer, connect

from headrace_plugins.changes.log import Offset
from headrace_plugins.connectors.mysql.binlog_reader import BinlogReader
from headrace_plugins.connectors.mysql.binlog_runs import BinlogColumns
from headrace_plugins.connectors.mysql.binlog_settings import current_place
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.mysql import Mysql

TURNS = 5
TABLE = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2), "
    "at DATETIME(6))"
)


def parts(rows: int) -> dict[str, tuple[int, list[str]]]:
    """Return the changes of each part, and what makes them."""
    few = rows // 10
    values = "concat('customer number ', seq), seq / 7, '2024-01-01' + INTERVAL seq SECOND"
    alone = (
        "CREATE PROCEDURE each_alone() BEGIN DECLARE n INT DEFAULT 0; "  # noqa: S608
        f"WHILE n < {few} DO INSERT INTO t VALUES (-n, concat('customer number ', n), n / 7, "
        "now(6)); SET n = n + 1; END WHILE; END"
    )
    return {
        "inserts": (rows, [f"INSERT INTO t SELECT seq, {values} FROM seq_1_to_{rows}"]),  # noqa: S608
        "updates": (rows, ["UPDATE t SET amount = amount + 1"]),
        "transactions of one row": (few, [alone, "CALL each_alone()"]),
    }


def changes(database: Mysql, after: Offset, count: int) -> Iterator[int]:
    """Yield how many bytes each piece has, with values as connectors get them."""
    own = database.default_schema
    reader = BinlogReader(
        database, lambda name: name.schema == own, heartbeat=timedelta(seconds=1)
    )
    reader.start(after, None)
    try:
        while count > 0:
            piece = reader.read(10)
            assert piece is not None
            for run in piece.runs:
                rows, rejected = BinlogColumns(run.shape.columns).parse_changes(run.rows)
                assert not rejected
                count -= rows.num_rows
                yield rows.nbytes
    finally:
        reader.stop()


def measured(database: Mysql, after: Offset, count: int) -> dict[str, float]:
    """Return the medians of a part."""
    wall, own, largest = [], [], 0
    for turn in range(TURNS + 1):
        start, spent = time.perf_counter(), time.process_time()
        largest = max(largest, *changes(database, after, count))
        if turn:
            wall.append(count / (time.perf_counter() - start))
            own.append(count / (time.process_time() - spent))
    return {
        "changes a second": round(statistics.median(wall)),
        "slowest": round(min(wall)),
        "quickest": round(max(wall)),
        "changes a second of processor time": round(statistics.median(own)),
        "largest piece, MB": round(largest / 1e6, 1),
        "memory of the process, MB": round(psutil.Process().memory_info().rss / 1e6),
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    figures: dict[str, object] = {"rows": rows}
    settings = {
        "log_bin": "binlog",
        "server_id": "1",
        "binlog_format": "ROW",
        "binlog_row_metadata": "FULL",
    }
    with MariadbServer.running(**settings) as server, server.database() as url:
        database = Mysql(address_of(url))
        with closing(connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
            for name, (count, statements) in parts(rows).items():
                with database.session() as session:
                    after = current_place(session)
                for statement in statements:
                    cursor.execute(statement)
                figures[name] = found = measured(database, after, count)
                print(name, found)
    save("binlog", figures)


if __name__ == "__main__":
    main()
