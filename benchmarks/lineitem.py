"""TPC-H's table lineitem as a file of CSV, and in database servers like those of the tests."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import psycopg
from tests import mariadb_server
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

TABLE = """CREATE TABLE lineitem (
  l_orderkey bigint NOT NULL,
  l_partkey bigint NOT NULL,
  l_suppkey bigint NOT NULL,
  l_linenumber integer NOT NULL,
  l_quantity decimal(15,2) NOT NULL,
  l_extendedprice decimal(15,2) NOT NULL,
  l_discount decimal(15,2) NOT NULL,
  l_tax decimal(15,2) NOT NULL,
  l_returnflag char(1) NOT NULL,
  l_linestatus char(1) NOT NULL,
  l_shipdate date NOT NULL,
  l_commitdate date NOT NULL,
  l_receiptdate date NOT NULL,
  l_shipinstruct varchar(25) NOT NULL,
  l_shipmode varchar(10) NOT NULL,
  l_comment varchar(44) NOT NULL
)"""
"""In every SQL; a target has no key, as each rival makes it the same."""
KEY = "ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)"

Sums = tuple[int, ...]
"""How many rows a copy has, and what its columns add up to."""


@dataclass(frozen=True)
class Lineitem:
    """The table at a scale: about 6,000,000 rows at 1.

    Args:
        scale: TPC-H's scale factor.
        cache: The folder that keeps what is made, from run to run.
    """

    scale: float
    cache: Path

    @cached_property
    def csv(self) -> Path:
        """The file, with a header."""
        folder = self.cache / f"lineitem-{self.scale}"
        done = folder / "lineitem.csv"
        if not done.exists():
            program = Path(sys.executable).with_name("tpchgen-cli")
            making = folder / "making"
            options = ["-s", str(self.scale), "--tables", "lineitem", "--overwrite"]
            subprocess.run([program, "csv", *options, "--output-dir", making], check=True)
            (making / "lineitem.csv").rename(done)  # whole, or not there
        return done

    @cached_property
    def sums(self) -> Sums:
        """What each copy must have."""
        return sums_of_files(f"read_csv('{self.csv}', header = true)")

    def fill_postgresql(self, url: str) -> None:
        """Make the table with its key and fill it by COPY."""
        run_psql(url, TABLE)
        run_psql(url, f"\\copy lineitem FROM '{self.csv}' (FORMAT csv, HEADER)")
        run_psql(url, KEY, "VACUUM ANALYZE lineitem", "CHECKPOINT")

    def fill_mariadb(self, url: str) -> None:
        """Make the table with its key and fill it by LOAD DATA LOCAL."""
        with mariadb_server.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"{TABLE[:-1]}, PRIMARY KEY (l_orderkey, l_linenumber))")
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{self.csv}' INTO TABLE lineitem"
                " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY ''"
                " IGNORE 1 LINES"
            )
            cursor.execute("ANALYZE TABLE lineitem")


@dataclass(frozen=True)
class Servers:
    """A server of each kind, with a database to copy from and one to copy to."""

    postgresql: PostgresqlServer
    mariadb: MariadbServer
    source: str
    target: str
    mariadb_source: str
    mariadb_target: str

    def empty_postgresql(self) -> None:
        """Make the target's table again, with nothing left to write from before."""
        quiet = "SET client_min_messages = warning"
        run_psql(self.target, quiet, "DROP TABLE IF EXISTS lineitem", TABLE, "CHECKPOINT")

    def empty_mariadb(self) -> None:
        """Make the target's table again."""
        self.run_mariadb("DROP TABLE IF EXISTS lineitem", TABLE)

    def run_mariadb(self, *statements: str) -> None:
        """Run statements in the target."""
        url = self.mariadb_target
        with mariadb_server.connect(url) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@contextmanager
def servers(**of_mariadb: str) -> Iterator[Servers]:
    """Run both servers with memory as a small machine in use has it, and tables of nothing."""
    with ExitStack() as until:
        postgresql = until.enter_context(
            PostgresqlServer.running(
                shared_buffers="512MB", max_wal_size="4GB", maintenance_work_mem="256MB"
            )
        )
        mariadb = until.enter_context(
            MariadbServer.running(
                innodb_buffer_pool_size="512M", innodb_log_file_size="512M", **of_mariadb
            )
        )
        yield Servers(
            postgresql,
            mariadb,
            until.enter_context(postgresql.database()),
            until.enter_context(postgresql.database()),
            until.enter_context(mariadb.database()),
            until.enter_context(mariadb.database()),
        )


def run_psql(url: str, *commands: str) -> None:
    """Run commands of psql, each in a transaction of its own."""
    options = [text for command in commands for text in ("--command", command)]
    subprocess.run([*PSQL, url, *options], check=True)


PSQL = ("psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1")


def sums_of_files(relation: str) -> Sums:
    """Return the sums of files, which are named as DuckDB names a relation."""
    with duckdb.connect() as connection:
        query = _query("date_diff('day', DATE '1970-01-01', {})", relation)
        return _sums(connection.execute(query).fetchone())


def sums_of_postgresql(url: str) -> Sums:
    """Return the sums of the table of a database."""
    with psycopg.connect(url) as connection:
        query = _query("({} - DATE '1970-01-01')", "lineitem")
        return _sums(connection.execute(query.encode()).fetchone())


def sums_of_mariadb(url: str) -> Sums:
    """Return the sums of the table of a database."""
    with mariadb_server.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(_query("datediff({}, '1970-01-01')", "lineitem"))
        return _sums(cursor.fetchone())


def _query(days: str, relation: str) -> str:
    """Return a query in which no row can take the place of another unseen."""
    numbers = ["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"]
    amounts = ["l_quantity", "l_extendedprice", "l_discount", "l_tax"]
    dates = [days.format(f"l_{name}date") for name in ("ship", "commit", "receipt")]
    texts = ["l_returnflag", "l_linestatus", "l_shipinstruct", "l_shipmode", "l_comment"]
    terms = [
        *numbers,
        *(f"CAST({amount} * 100 AS DECIMAL(18,0))" for amount in amounts),
        *dates,
        *(f"char_length({text})" for text in texts),
        *(f"ascii({text})" for text in texts),
    ]
    # Times the number of the line as well, so that values that changed rows show.
    sums = [f"sum({term}), sum(({term}) * l_linenumber)" for term in terms]
    return f"SELECT count(*), {', '.join(sums)} FROM {relation}"  # noqa: S608


def _sums(row: object) -> Sums:
    assert isinstance(row, tuple)
    return tuple(int(value) for value in row)
