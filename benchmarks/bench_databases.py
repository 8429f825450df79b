"""Copies of databases, beside the tool that is quickest at each when tuned by hand.

All rivals of a copy take turns in one run on the same servers, and each result is checked by
its sums. Where a rival has variants, each is tried twice, and the quicker takes part. The first
run of each rival is the cold one, and medians are of the five turns that follow.

    python benchmarks/bench_databases.py [--scale 0.5] [--only "PostgreSQL to Parquet"]
"""

import argparse
import json
import statistics
import subprocess
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import psycopg
from harness import Bench, bench, machine, remove, save, timed
from lineitem import (
    KEY,
    PSQL,
    Lineitem,
    Servers,
    Sums,
    run_psql,
    servers,
    sums_of_files,
    sums_of_mariadb,
    sums_of_postgresql,
)
from ruamel.yaml import YAML

from headrace.settings import Settings, load_settings
from headrace.spark.jars import Jar, JarCache
from headrace.spark.jvm import find_java

TURNS = 5
DRIVERS = (
    Jar(
        feature="postgresql",
        coordinates="org.postgresql:postgresql:42.7.8",
        sha256="2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
    Jar(
        feature="mariadb",
        coordinates="org.mariadb.jdbc:mariadb-java-client:3.5.6",
        sha256="a129703efd7b0f334564d46753de999f09b3a361489a2eb647e6020390981cc9",
    ),
)
DLT = (
    "dlt[filesystem,parquet,postgres]==1.31.0",
    "connectorx==0.4.6",
    "pymysql==1.2.4",
    "sqlalchemy==2.1.9",
)

_TABLE = """
source:
  connector: jdbc
  connection.url: {%s}
  table.include.list: lineitem
"""
_POSTGRESQL = """
sinks:
  - connector: postgres
    connection.url: {target}
    schema.save.mode: recreate
"""
_PARQUET = """
sinks:
  - connector: file
    path: {parquet}
    format: parquet
"""
DEFINITIONS: Mapping[str, str] = {
    "PostgreSQL to Parquet": _TABLE % "source" + _PARQUET,
    "MariaDB to Parquet": _TABLE % "mariadb_source" + _PARQUET,
    "PostgreSQL to PostgreSQL": _TABLE % "source" + _POSTGRESQL,
    "PostgreSQL to PostgreSQL, a filter between": _TABLE % "source"
    + "\ntransforms:\n  - type: Filter\n    condition: l_quantity > 0\n"
    + _POSTGRESQL,
    "PostgreSQL to MariaDB": _TABLE % "source"
    + """
sinks:
  - connector: mysql
    connection.url: {mariadb_target}
    schema.save.mode: recreate
""",
    "CSV to PostgreSQL": """
source:
  connector: file
  path: {csv}
  settle.ms: 0
"""
    + _POSTGRESQL
    + "    table.name.format: lineitem\n",
}
"""Headrace's own copy of a case, by the case's name: the definition as a user writes it, in
YAML without its name. `{source}` and `{target}` are the URLs of the PostgreSQL databases,
`{mariadb_source}` and `{mariadb_target}` those of MariaDB, `{parquet}` is the folder to write
to and `{csv}` the file to read."""

OURS = "Headrace"
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One copy.

    Args:
        rivals: Who makes it, each with its variants, which write to the same target.
        empty: Makes the target empty; not timed.
        sums: What the target then has.
    """

    rivals: Mapping[str, Mapping[str, Work]]
    empty: Work
    sums: Callable[[], Sums]


@dataclass
class Measured:
    """What a rival took: its variant that takes part, cold, and in each turn."""

    variant: str
    work: Work
    cold: float
    tried: dict[str, float]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The seconds of a warm turn."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Cases:
    """The copies of one run."""

    run: Bench
    servers: Servers
    data: Lineitem
    dlt: Callable[..., None]

    def all(self) -> dict[str, Case]:
        """Return the cases by their names."""
        return {
            "PostgreSQL to Parquet": self._parquet(
                self.servers.source,
                {
                    "url": f"jdbc:{self.servers.source.replace('postgres@', '')}?user=postgres",
                    "driver": "org.postgresql.Driver",
                },
            ),
            "MariaDB to Parquet": self._parquet(
                self.servers.mariadb_source,
                {
                    # The scheme by which Spark knows how MariaDB quotes names.
                    "url": f"jdbc:{self.servers.mariadb_source.replace('root@', '')}"
                    "?user=root&permitMysqlScheme",
                    "driver": "org.mariadb.jdbc.Driver",
                },
            ),
            "PostgreSQL to PostgreSQL": self._postgresql(
                {
                    "psql COPY to psql COPY, and the key": {
                        "text": partial(self._pipe, "text"),
                        "binary": partial(self._pipe, "binary"),
                    }
                }
            ),
            "PostgreSQL to PostgreSQL, a filter between": self._postgresql(
                {
                    "psql COPY to psql COPY, without the filter": {
                        "": partial(self._pipe, "binary")
                    }
                }
            ),
            "PostgreSQL to MariaDB": Case(
                {
                    "psql COPY to mariadb LOAD DATA, with the key": {
                        "one stream": partial(self._to_mariadb, 1),
                        "two streams": partial(self._to_mariadb, 2),
                    }
                },
                self.servers.empty_mariadb,
                lambda: sums_of_mariadb(self.servers.mariadb_target),
            ),
            "CSV to PostgreSQL": self._postgresql({"psql \\copy": {"csv": self._load_csv}}),
        }

    def ours(self, definition: str) -> None:
        """Run a definition of `DEFINITIONS`."""
        text = definition.format(
            source=self.servers.source,
            target=self.servers.target,
            mariadb_source=self.servers.mariadb_source,
            mariadb_target=self.servers.mariadb_target,
            parquet=self._files,
            csv=self.data.csv,
        )
        self.run.run(YAML(typ="safe").load(text))

    @property
    def _files(self) -> Path:
        return self.run.folder / "parquet"

    def _parquet(self, source: str, jdbc: Mapping[str, str]) -> Case:
        spark = {
            f"{partitions} partitions, fetchsize {rows:,}": partial(
                self._spark, jdbc, partitions, rows
            )
            for partitions in (2, 4)
            for rows in (10_000, 30_000, 100_000)
        }
        parts: dict[str, dict[str, object]] = {"one stream": {}} | {
            f"{number} partitions": {"partition_on": "l_orderkey", "partition_num": number}
            for number in (2, 4)
        }
        dlt = {
            title: partial(
                self.dlt, url=source, table="lineitem", target=str(self._files), connectorx=more
            )
            for title, more in parts.items()
        }
        return Case(
            {"Spark JDBC": spark, "dlt, ConnectorX": dlt},
            lambda: remove(self._files),
            lambda: sums_of_files(f"read_parquet('{self._files}/**/*.parquet')"),
        )

    def _postgresql(self, rivals: Mapping[str, Mapping[str, Work]]) -> Case:
        return Case(
            rivals,
            self.servers.empty_postgresql,
            lambda: sums_of_postgresql(self.servers.target),
        )

    def _spark(self, jdbc: Mapping[str, str], partitions: int, rows: int) -> None:
        low, high = self._bounds()
        options = {
            **jdbc,
            "dbtable": "lineitem",
            "partitionColumn": "l_orderkey",
            "lowerBound": str(low),
            "upperBound": str(high + 1),
            "numPartitions": str(partitions),
            "fetchsize": str(rows),
        }
        reader = self.run.runtime.spark.read.format("jdbc").options(**options)
        reader.load().write.parquet(str(self._files))

    def _bounds(self) -> tuple[int, int]:
        with psycopg.connect(self.servers.source) as connection:
            row = connection.execute("SELECT min(l_orderkey), max(l_orderkey) FROM lineitem")
            low, high = row.fetchone() or (0, 0)
            return low, high

    def _pipe(self, form: str) -> None:
        writer = _psql(self.servers.source, f"COPY lineitem TO STDOUT (FORMAT {form})")
        reader = _psql(self.servers.target, f"COPY lineitem FROM STDIN (FORMAT {form})")
        _pipes([(writer, reader)])
        run_psql(self.servers.target, KEY)  # the copy has the key of its source

    def _to_mariadb(self, streams: int) -> None:
        port = self.servers.mariadb.port
        database = self.servers.mariadb_target.rpartition("/")[2]
        # The rows come in the order of the key, so that it costs least now.
        self.servers.run_mariadb(KEY)
        # Backslashes escape in both alike, and null is \\N.
        load = (
            "SET unique_checks = 0, foreign_key_checks = 0;"
            " LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE lineitem CHARACTER SET utf8mb4"
        )
        reader = ["mariadb", "--no-defaults", "--host=127.0.0.1", f"--port={port}"]
        reader += ["--user=root", "--local-infile=1", database, "--execute", load]
        low, high = self._bounds()
        steps = [low + (high + 1 - low) * step // streams for step in range(streams + 1)]
        pipes = []
        for start, end in pairwise(steps):
            within = f"l_orderkey >= {start} AND l_orderkey < {end}"
            rows = f"(SELECT * FROM lineitem WHERE {within})" if streams > 1 else "lineitem"  # noqa: S608
            pipes.append((_psql(self.servers.source, f"COPY {rows} TO STDOUT"), reader))
        _pipes(pipes)

    def _load_csv(self) -> None:
        run_psql(
            self.servers.target,
            f"\\copy lineitem FROM '{self.data.csv}' (FORMAT csv, HEADER)",
        )


def _psql(url: str, command: str) -> list[str]:
    return [*PSQL, url, "--command", command]


def _pipes(commands: list[tuple[list[str], list[str]]]) -> None:
    """Run pairs of a writer and a reader side by side."""
    running = []
    for writer, reader in commands:
        writing = subprocess.Popen(writer, stdout=subprocess.PIPE)
        running += [writing, subprocess.Popen(reader, stdin=writing.stdout)]
        assert writing.stdout is not None
        writing.stdout.close()  # the writer is to learn of a reader that is gone
    for process in running:
        if process.wait() != 0:
            raise SystemExit(process.args)


@contextmanager
def dlt_process(cache: Path) -> Iterator[Callable[..., None]]:
    """Give a call that copies with dlt, in one process that goes on; its start is not timed."""
    folder = cache / f"dlt-{sha256(repr(DLT).encode()).hexdigest()[:8]}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *DLT], check=True)
        (folder / "done").touch()
    script = Path(__file__).with_name("dlt_copy.py")
    quiet = ["env", "RUNTIME__LOG_LEVEL=ERROR", "RUNTIME__DLTHUB_TELEMETRY=false"]
    command = [*quiet, str(python), str(script)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def copy(**what: object) -> None:
            print(json.dumps(what), file=asked, flush=True)
            assert answers.readline() == "done\n", "dlt failed"

        yield copy
        asked.close()


def driver_jars(settings: Settings) -> str:
    """Return the JDBC drivers as a class path."""
    java = find_java(settings.java_home)
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    return ":".join(map(str, cache.resolve(DRIVERS)))


def measure(
    case: Case, rivals: Mapping[str, Mapping[str, Work]], sums: Sums
) -> dict[str, Measured]:
    """Try all variants, then let the quickest of each rival take turns."""

    def once(name: str, work: Work) -> float:
        case.empty()
        seconds = timed(work)
        found = case.sums()
        assert found == sums, f"{name} made another table: {found}, expected {sums}"
        return seconds

    measured: dict[str, Measured] = {}
    for name, variants in rivals.items():
        tried = {each: (once(name, work), once(name, work)) for each, work in variants.items()}
        best = min(tried, key=lambda each: tried[each][1])
        cold = next(iter(tried.values()))[0]
        warm = {each: seconds for each, (_, seconds) in tried.items()}
        measured[name] = Measured(best, variants[best], cold, warm)
    for turn in range(TURNS):
        order = list(measured.items())
        for name, rival in order if turn % 2 else reversed(order):
            rival.seconds.append(once(name, rival.work))
    return measured


def report(name: str, measured: Mapping[str, Measured]) -> dict[str, object]:
    """Print the rows of a case, and return what is kept of it."""
    ours = measured.get(OURS)
    for title, rival in measured.items():
        ratio = "-"
        if ours is not None and rival is not ours:
            pairs = zip(ours.seconds, rival.seconds, strict=True)
            ratio = f"{statistics.median(mine / other for mine, other in pairs):.2f}"
        shown = f"{title} ({rival.variant})" if rival.variant else title
        row = [name, shown, f"{rival.median:.1f}", f"{rival.cold:.1f}", ratio]
        print(f"| {' | '.join(row)} |", flush=True)
    return {
        title: {
            "variant": rival.variant,
            "tried_s": rival.tried,
            "cold_s": rival.cold,
            "seconds": rival.seconds,
        }
        for title, rival in measured.items()
    }


def main(scale: float, only: str) -> None:
    """Run every case and print and keep the figures."""
    cache = load_settings().cache / "benchmarks"
    data = Lineitem(scale, cache)
    jars = driver_jars(load_settings())
    with (
        servers() as at,
        dlt_process(cache) as dlt,
        bench(spark_conf={"spark.driver.extraClassPath": jars}) as run,
    ):
        data.fill_postgresql(at.source)
        data.fill_mariadb(at.mariadb_source)
        print(f"{data.sums[0]:,} rows; {machine()}; seconds, the median of {TURNS}\n")
        print("| case | by | warm | cold | Headrace's time over it |")
        print("|---|---|---|---|---|")
        figures: dict[str, object] = {"rows": data.sums[0]}
        cases = Cases(run, at, data, dlt)
        for name, case in cases.all().items():
            if only not in name:
                continue
            rivals = dict(case.rivals)
            if (definition := DEFINITIONS.get(name)) is not None:
                rivals[OURS] = {"": partial(cases.ours, definition)}
            figures[name] = report(name, measure(case, rivals, data.sums))
    save("databases", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.5, help="TPC-H's scale factor")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    given = parser.parse_args()
    main(given.scale, given.only)
