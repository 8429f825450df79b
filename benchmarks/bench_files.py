"""Large text files into Parquet and Delta, beside a hand-written Spark job and DuckDB.

All three take turns in one process on the same cores; DuckDB has as many threads as Spark.
The first turn of each is the cold one, and medians are of the five that follow.

    python benchmarks/bench_files.py [--rows 10000000] [--only "JSON"]
"""

import argparse
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
from bench_throughput import SCHEMA, write_inputs
from harness import Bench, bench, machine, remove, save, timed
from pyspark.sql import DataFrame

TURNS = 5
BAD_RECORD = 50
TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "invalid"}
CHAIN = [
    {"type": "Cast$Value", "spec": "score:string"},
    {"type": "ReplaceField$Value", "renames": "name:customer"},
    {"type": "MaskField$Value", "fields": "amount"},
    {"type": "InsertField$Value", "static.field": "region", "static.value": "eu"},
    {
        "type": "TimestampConverter$Value",
        "field": "at",
        "target.type": "string",
        "format": "yyyy-MM-dd HH:mm:ss",
    },
    {"type": "ReplaceField$Value", "exclude": "day"},
    {"type": "ValueToKey", "fields": "id"},
    {"type": "RegexRouter", "regex": "(.*)", "replacement": "shop-$1"},
]
BY_HAND = (
    "id",
    "name AS customer",
    "IF(amount IS NULL, NULL, CAST(0 AS DECIMAL(12,2))) AS amount",
    "CAST(score AS STRING) AS score",
    "date_format(at, 'yyyy-MM-dd HH:mm:ss') AS at",
    "'eu' AS region",
)


@dataclass(frozen=True)
class Case:
    """One copy, as each of the rivals makes it."""

    ours: Callable[[], object]
    spark: Callable[[], object]
    duckdb: Callable[[], object] | None = None


@dataclass(frozen=True)
class Cases:
    """The copies of one run."""

    run: Bench

    def all(self) -> dict[str, Case]:
        """Return the cases by their names."""
        return {
            "CSV to Parquet": Case(
                lambda: self._ours("csv", "file"),
                lambda: self._spark("csv", "parquet"),
                lambda: self._duckdb("csv"),
            ),
            "CSV to Delta": Case(
                lambda: self._ours("csv", "delta"),
                lambda: self._spark("csv", "delta"),
                lambda: self._duckdb("csv"),
            ),
            "JSON lines to Parquet": Case(
                lambda: self._ours("json", "file"),
                lambda: self._spark("json", "parquet"),
                lambda: self._duckdb("json"),
            ),
            "CSV by eight transforms to Parquet": Case(
                lambda: self._ours("csv", "file", transforms=CHAIN),
                lambda: self._spark("csv", "parquet", *BY_HAND),
            ),
            "CSV, 1 % invalid, to Parquet": Case(
                lambda: self._ours("csv", "file", of="invalid-csv", **TOLERANT),
                lambda: self._spark("csv", "parquet", of="invalid-csv"),
                lambda: self._duckdb("csv", of="invalid-csv"),
            ),
            "JSON lines, 1 % invalid, to Parquet": Case(
                lambda: self._ours("json", "file", of="invalid-json", **TOLERANT),
                lambda: self._spark("json", "parquet", of="invalid-json"),
                lambda: self._duckdb("json", of="invalid-json"),
            ),
        }

    def write_invalid(self) -> None:
        """Write the CSV and JSON again; every hundredth record has no number where one must be.

        Headrace dead-letters them with their cause; the others drop them.
        """
        for format_, before in (("csv", b""), ("json", b'{"id":')):
            target = self.run.folder / f"invalid-{format_}"
            target.mkdir()
            for file in (self.run.folder / format_).glob(f"*.{format_}"):
                with file.open("rb") as lines, (target / file.name).open("wb") as out:
                    for number, line in enumerate(lines):
                        bad = number % 100 == BAD_RECORD and line.startswith(before)
                        out.write(line.replace(before, before + b"x", 1) if bad else line)

    def _ours(self, format_: str, sink: str, of: str = "", **more: object) -> None:
        target = self.run.target()
        source = {
            "connector": "file",
            "path": str(self.run.folder / (of or format_)),
            "format": format_,
            "schema": SCHEMA,
        }
        to = {"connector": sink, "path": str(target)}
        to |= {"format": "parquet"} if sink == "file" else {}
        self.run.run({"source": source, "sinks": [to], **more})
        remove(target)

    def _spark(self, format_: str, to: str, *columns: str, of: str = "") -> None:
        target = self.run.target()
        reader = self.run.runtime.spark.read.schema(SCHEMA)
        if of:
            reader = reader.option("mode", "DROPMALFORMED")
        if format_ == "csv":
            reader = reader.option("header", "true")
        path = str(self.run.folder / (of or format_))
        frame: DataFrame = reader.format(format_).load(path)
        frame = frame.selectExpr(*columns) if columns else frame
        frame.write.format(to).save(str(target))
        remove(target)

    def _duckdb(self, format_: str, of: str = "") -> None:
        target = self.run.target()
        target.mkdir()
        fields = [field.split(" ", 1) for field in SCHEMA.split(", ")]
        types = ", ".join(f"'{name}': '{kind.upper()}'" for name, kind in fields)
        path = self.run.folder / (of or format_) / f"*.{format_}"
        more = ", header=true" if format_ == "csv" else ", format='newline_delimited'"
        more += ", ignore_errors=true" if of else ""
        rows = f"read_{format_}('{path}', columns={{{types}}}{more})"
        with duckdb.connect(config={"threads": os.cpu_count() or 1}) as connection:
            to = target / "out.parquet"
            connection.sql(f"FROM {rows}").write_parquet(str(to))
        remove(target)


def main(rows: int, only: str) -> None:
    """Run every case and print and keep the figures."""
    figures: dict[str, object] = {"rows": rows}
    with bench() as run:
        write_inputs(run, rows)
        cases = Cases(run)
        cases.write_invalid()
        print(f"{rows:,} rows; {machine()}; seconds, the median of {TURNS}\n")
        print("| case | Headrace | Spark | DuckDB | Spark / Headrace | Headrace / DuckDB |")
        print("|---|---|---|---|---|---|")
        for name, case in cases.all().items():
            if only not in name:
                continue
            rivals = [case.ours, case.spark, *([case.duckdb] if case.duckdb else [])]
            turns = [[timed(rival) for rival in rivals] for _ in range(1 + TURNS)]
            warm = [statistics.median(each[1:]) for each in zip(*turns, strict=True)]
            faster = statistics.median(turn[1] / turn[0] for turn in turns[1:])
            beside = []
            if case.duckdb is not None:
                beside.append(statistics.median(turn[0] / turn[2] for turn in turns[1:]))
            shown = [f"{seconds:.1f}" for seconds in warm] + ["-"] * (3 - len(warm))
            ratios = [f"{faster:.2f}", f"{beside[0]:.2f}" if beside else "-"]
            print(f"| {name} | {' | '.join([*shown, *ratios])} |", flush=True)
            figures[name] = {"seconds": turns, "faster": faster, "duckdb": beside}
    save("files", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="the cases with this in their names")
    given = parser.parse_args()
    main(given.rows, given.only)
