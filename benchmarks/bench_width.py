"""How long a batch of many columns takes, beside the hand-written Spark job of that width.

Each case and width runs in a process of its own, so that a first batch is cold and one that
does not end ends nothing else. A batch has few rows: what is measured is planning.

    python benchmarks/bench_width.py [--widths 50,100] [--only CSV] [--timeout 300]
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Bench, bench, cpu_seconds, machine, remove, save, timed
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.worker import BatchLoop

WIDTHS = (50, 100, 200, 500, 1000, 2000, 5000)
ROWS = 200
LATER = 5
KINDS = ("bigint", "string", "double", "date", "boolean")
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
STRUCT = 10
"""How many columns are in a struct, where they are in structs."""
TIMEOUT_SECONDS = 300


def kind_of(column: int) -> str:
    """Return the type of a column."""
    return KINDS[column % len(KINDS)]


def value_of(column: int, row: int) -> Any:
    """Return the value of a column in a row."""
    number = row * 31 + column
    match kind_of(column):
        case "bigint":
            return number
        case "string":
            return str(number % 1000)
        case "double":
            return number / 4
        case "date":
            return f"2024-01-{number % 28 + 1:02d}"
        case _:
            return number % 2 == 0


@dataclass
class Feed:
    """Writes files of so many columns; three of a hundred rows are bad, in two ways."""

    folder: Path
    width: int
    nested: bool = False
    written: int = 0

    @property
    def ddl(self) -> str:
        """Return the columns as Spark has them."""
        if not self.nested:
            return ", ".join(f"c{n} {kind_of(n)}" for n in range(self.width))
        structs: dict[str, list[str]] = {}
        for n in range(self.width):
            structs.setdefault(self.struct(n), []).append(f"c{n}: {kind_of(n)}")
        return ", ".join(f"{name} struct<{', '.join(own)}>" for name, own in structs.items())

    def struct(self, column: int) -> str:
        """Return the struct that a column is in, where columns are in structs."""
        return f"s{column // STRUCT}"

    def place(self, column: int) -> str:
        """Return the path to a column."""
        return f"{self.struct(column)}.c{column}" if self.nested else f"c{column}"

    def csv(self) -> Path:
        """Write one more file of CSV."""
        lines = [",".join(f"c{n}" for n in range(self.width))]
        lines += [",".join(self._text(n, row) for n in range(self.width)) for row in self._rows]
        return self._write("csv", lines)

    def json(self) -> Path:
        """Write one more file of JSON lines."""
        return self._write("json", [json.dumps(self._object(row)) for row in self._rows])

    def _object(self, row: int) -> dict[str, Any]:
        fields = {f"c{n}": self._bad(n, row, value_of(n, row)) for n in range(self.width)}
        if not self.nested:
            return fields
        made: dict[str, Any] = {}
        for column, (name, value) in enumerate(fields.items()):
            made.setdefault(self.struct(column), {})[name] = value
        return made

    @property
    def _rows(self) -> range:
        return range(self.written * ROWS, (self.written + 1) * ROWS)

    def _text(self, column: int, row: int) -> str:
        value = self._bad(column, row, value_of(column, row))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _bad(self, column: int, row: int, value: Any) -> Any:
        # The first is none to the source, the second none to a transform.
        if column == 0 and row % 100 == 7:
            return "none"
        return "much" if column == 1 and row % 50 == 11 else value

    def _write(self, kind: str, lines: list[str]) -> Path:
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{self.written:04d}.{kind}"
        staged = path.with_suffix(".tmp")
        staged.write_text("\n".join([*lines, ""]))
        self.written += 1
        return staged.rename(path)


@dataclass(frozen=True)
class Case:
    """What Headrace does, and what a user would write by hand.

    Args:
        kind: Of the input's files.
        sink: Of the target.
        casts: How many texts are cast; all for None.
        nested: Whether the columns are in structs of ten.
        topic: Whether there is a topic between.
        converter: The value's converter, where there is a topic between.
    """

    kind: str
    sink: str
    casts: int | None = 1
    nested: bool = False
    topic: bool = False
    converter: str | None = None

    def definitions(self, feed: Feed, target: Path) -> list[dict[str, object]]:
        """Return the definitions of connectors, of which each reads what the last one wrote."""
        sink = {"connector": "delta", "path": str(target)}
        if self.sink == "parquet":
            sink = {"connector": "file", "path": str(target), "format": "parquet"}
        texts = [f"{feed.place(n)}:int64" for n in self.cast(feed)]
        copy = {
            "source": {
                "connector": "file",
                "path": f"{feed.folder}/*.{self.kind}",
                "format": self.kind,
                "schema": feed.ddl,
                "settle.ms": 0,
            },
            "transforms": [
                {"type": "Cast", "spec": ",".join(texts), "field.syntax.version": "V2"},
                {"type": "InsertField", "static.field": "origin", "static.value": "bench"},
            ],
            **LETTERS,
        }
        if not self.topic:
            return [{**copy, "sinks": [sink]}]
        between = {"topic": "between"}
        if self.converter is not None:
            between["value.converter"] = self.converter
        return [{**copy, **between}, {**between, "sinks": [sink], **LETTERS}]

    def cast(self, feed: Feed) -> list[int]:
        """Return the columns that are cast."""
        texts = [n for n in range(feed.width) if kind_of(n) == "string"]
        return texts[: self.casts]

    def by_hand(self, spark: Any, feed: Feed, file: Path, target: Path) -> None:
        """Do the same with Spark alone, without dead letters."""
        reader = spark.read.schema(feed.ddl).option("mode", "DROPMALFORMED")
        frame = reader.option("header", self.kind == "csv").format(self.kind).load(str(file))
        for struct, columns in self._structs(feed, frame.columns).items():
            own = ", ".join(f"'{c}', {self._cast_sql(feed, c)}" for c in columns)
            frame = frame.withColumn(struct, F.expr(f"named_struct({own})"))
        if not self.nested:
            columns = [f"{self._cast_sql(feed, name)} AS {name}" for name in frame.columns]
            frame = frame.selectExpr(*columns)
        frame = frame.selectExpr("*", "'bench' AS origin")
        frame = frame.where(f"{feed.place(1)} IS NOT NULL")
        if self.topic:
            frame = self._by_topic(spark, frame, target.with_name("between"))
        frame.write.mode("append").format(self.sink).save(str(target))

    def _structs(self, feed: Feed, names: Sequence[str]) -> dict[str, list[str]]:
        if not self.nested:
            return {}
        of = {name: [n for n in range(feed.width) if feed.struct(n) == name] for name in names}
        casts = set(self.cast(feed))
        return {s: [f"c{n}" for n in own] for s, own in of.items() if casts & {*own}}

    def _cast_sql(self, feed: Feed, name: str) -> str:
        number = int(name.removeprefix("c"))
        place = feed.place(number)
        return f"try_cast({place} AS BIGINT)" if number in self.cast(feed) else place

    def _by_topic(self, spark: Any, frame: DataFrame, between: Path) -> DataFrame:
        """Write the rows, as what the converter makes of them, and read them."""
        types = frame.schema.simpleString()
        value = "struct(*)" if self.converter is None else "to_json(struct(*))"
        frame.selectExpr(f"{value} AS value").write.mode("overwrite").parquet(str(between))
        read = spark.read.parquet(str(between))
        if self.converter is not None:
            read = read.selectExpr(f"from_json(value, '{types}') AS value")
        columns: DataFrame = read.select("value.*")
        return columns


CASES = {
    "CSV to Delta": Case("csv", "delta"),
    "CSV to Parquet": Case("csv", "parquet"),
    "JSON to Delta": Case("json", "delta"),
    "CSV to Delta, all texts cast": Case("csv", "delta", None),
    "CSV by a topic to Delta": Case("csv", "delta", topic=True),
    "CSV by JSON to Delta": Case("csv", "delta", topic=True, converter="JsonConverter"),
    "CSV by Avro to Delta": Case("csv", "delta", topic=True, converter="AvroConverter"),
    "JSON in structs to Delta": Case("json", "delta", nested=True),
    "JSON in structs by Avro to Delta": Case(
        "json", "delta", nested=True, topic=True, converter="AvroConverter"
    ),
}


def stepped(loops: Sequence[BatchLoop], rows: int) -> None:
    """Move one batch through all, and see that all its records were accounted for."""
    for number, loop in enumerate(loops):
        batch = loop.step()
        assert batch is not None
        assert batch.counts.read == rows, batch.counts
        assert number or batch.counts.rejected, batch.counts
        rows = batch.counts.written


def both(work: Callable[[], object]) -> tuple[float, float]:
    """Return how many seconds something took, and of CPU in all processes."""
    used = cpu_seconds()
    return timed(work), cpu_seconds() - used


def measured(run: Bench, case: Case, width: int, later: int) -> dict[str, object]:
    """Return what the first batch took and the later ones, and the same by hand.

    Both take turns, so that what else the machine does falls on both.
    """
    feed = Feed(run.folder / "in", width, case.nested)
    make: Callable[[], Path] = getattr(feed, case.kind)
    run.runtime.spark.range(10).selectExpr("sum(id)").collect()
    file = make()
    definitions = case.definitions(feed, run.target())
    loops = [run.loop(each, f"loop{n}") for n, each in enumerate(definitions)]
    target = run.target()
    ours, theirs = [], []
    for number in range(1 + later):
        file = make() if number else file
        ours.append(both(lambda: stepped(loops, ROWS)))
        theirs.append(both(lambda f=file: case.by_hand(run.runtime.spark, feed, f, target)))  # type: ignore[misc]
    remove(target)
    return {"ours": ours, "by_hand": theirs}


def apart(name: str, width: int, later: int, timeout: int) -> dict[str, Any] | None:
    """Measure in a process of its own; None if it does not end."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, __file__, "--one", name, "--widths", str(width)]
        command += ["--later", str(later)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*command, "--out", file.name], check=True, timeout=timeout)
            found: dict[str, Any] = json.loads(Path(file.name).read_text())
            return found
    return None


def line(name: str, width: int, found: dict[str, Any] | None) -> str:
    """Return the row of the report."""
    if found is None:
        return f"| {name} | {width:,} | does not end | | | | |"
    cells, later = [], []
    for side in ("ours", "by_hand"):
        (first, _), *others = found[side]
        seconds, cpu = (statistics.median(each) for each in zip(*others, strict=True))
        cells += [f"{first:.1f} s", f"{seconds:.2f} s ({cpu:.2f})"]
        later.append(cpu)
    return f"| {name} | {width:,} | {' | '.join(cells)} | {later[0] / later[1]:.2f} |"


def all_of(widths: list[int], only: str, later: int, timeout: int) -> Iterator[tuple[str, Any]]:
    """Measure every case at every width, and print a row for each."""
    print(f"{ROWS} rows a batch; {machine()}\n")
    print("In brackets are CPU seconds of all processes, of which the ratio is.\n")
    print(
        "| case | columns | first batch | later ones | first by hand | later by hand | ratio |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in CASES:
        if only not in name:
            continue
        for width in widths:
            found = apart(name, width, later, timeout)
            print(line(name, width, found), flush=True)
            yield f"{name}, {width}", found


def main() -> None:
    """Measure, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    parser.add_argument("--only", default="", help="the cases whose names hold this text")
    parser.add_argument("--later", type=int, default=LATER, help="batches behind the first")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_SECONDS, help="seconds")
    parser.add_argument("--one", help="measure this case in this process")
    parser.add_argument("--out", help="where its figures go")
    found = parser.parse_args()
    widths = [int(width) for width in found.widths.split(",")]
    if found.one is None:
        save(
            "width",
            {"rows": ROWS, **dict(all_of(widths, found.only, found.later, found.timeout))},
        )
        return
    with bench() as run:
        figures = measured(run, CASES[found.one], widths[0], found.later)
    if found.out is None:
        print(line(found.one, widths[0], figures))
    else:
        Path(found.out).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
