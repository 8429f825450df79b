"""A chain of eight transforms, beside the hand-written Spark expression and Kafka's own.

All three take the same records. Spark has one core, and Kafka's transforms one thread, whose
records are made beforehand; Spark reads its own from Parquet files. The hand-written job gives
the same columns, and like the chain it keeps nulls and stops at an amount that is no number;
it does not count its rows.

    python benchmarks/bench_transforms.py [--rows 5000000]
"""

import argparse
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import HEADER, Bench, bench, compare, machine, save

from headrace.settings import Settings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

FOLDER = Path(__file__).parent
LOCK = FOLDER.parent / "tests" / "differential" / "jars.toml"
KAFKA = "org.apache.kafka.connect.transforms."
KAFKA_RUNS = 5
CHAIN: Mapping[str, Mapping[str, str]] = {
    "Cast$Value": {"spec": "amount:float64,qty:string"},
    "ReplaceField$Value": {"exclude": "secret", "renames": "name:customer"},
    "MaskField$Value": {"fields": "card"},
    "InsertField$Value": {"static.field": "region", "static.value": "eu"},
    "TimestampConverter$Value": {
        "field": "at",
        "target.type": "string",
        "format": "yyyy-MM-dd HH:mm:ss",
    },
    "Flatten$Value": {"delimiter": "_"},
    "ValueToKey": {"fields": "id"},
    "RegexRouter": {"regex": "(.*)", "replacement": "shop-$1"},
}
ROW = (
    "id",
    "concat('customer ', id % 1000) AS name",
    "concat('4111-', id % 10000) AS card",
    "concat(id % 1000, '.25') AS amount",
    "CAST(id % 100 AS INT) AS qty",
    "timestamp_millis(1600000000000 + id * 1000) AS at",
    "concat('s', id % 7) AS secret",
    "struct(concat('city ', id % 50) AS city, CAST(id % 9999 AS INT) AS zip) AS address",
)
# The columns that the sink of both computes: a field each, as a nested row costs more.
NO_HEADERS = "CAST(NULL AS array<struct<key:string,value:string,type:string>>) AS headers"
COPY_BY_HAND = ("CAST(NULL AS STRING) AS key", "*", NO_HEADERS)
BY_HAND = (
    "struct(id) AS key",
    "id",
    "name AS customer",
    "IF(card IS NULL, NULL, '') AS card",
    "CAST(amount AS DOUBLE) AS amount",
    "CAST(qty AS STRING) AS qty",
    "date_format(at, 'yyyy-MM-dd HH:mm:ss') AS at",
    "address.city AS address_city",
    "address.zip AS address_zip",
    "'eu' AS region",
    NO_HEADERS,
)


@dataclass(frozen=True)
class Cases:
    """The chain as Headrace runs it and as a user would write it by hand."""

    run: Bench
    files: Path

    def ours(self, steps: Sequence[Mapping[str, str]]) -> Callable[[], object]:
        """Return a run of Headrace with these steps, into nothing."""
        definition: dict[str, object] = {
            "source": {"connector": "file", "path": str(self.files), "format": "parquet"},
            "transforms": [dict(step) for step in steps],
            "sinks": [{"connector": "noop"}],
        }
        return lambda: self.run.run(definition)

    def by_hand(self, columns: Sequence[str]) -> Callable[[], object]:
        """Return a job of Spark's with these columns, into nothing."""
        spark = self.run.runtime.spark

        def job() -> None:
            frame = spark.read.parquet(str(self.files)).selectExpr(*columns)
            frame.write.mode("overwrite").format("noop").save()

        return job


def kafka_seconds(settings: Settings, rows: int) -> list[float]:
    """Run Kafka's own transforms and return the seconds of each run."""
    java = find_java(settings.java_home)
    folder = settings.cache / "jars"
    cache = JarCache(folder=folder, java=java, spark_conf=settings.spark_conf)
    classpath = ":".join(str(jar) for jar in cache.resolve(locked_jars(lock=LOCK)))
    steps: list[str] = []
    for name, config in CHAIN.items():
        steps += [f"{KAFKA}{name}", *(f"{key}={text}" for key, text in config.items()), ";"]
    command = [str(java.home / "bin" / "java"), "-Xmx1g", "-cp", classpath]
    command += [str(FOLDER / "KafkaChain.java"), str(rows), *steps]
    seconds = []
    for _ in range(KAFKA_RUNS):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout.splitlines()[0]))
    return seconds


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    rows = arguments.parse_args().rows
    print(f"{machine()}; {rows:,} records, Spark with one core\n\n{HEADER}")
    steps = [{"type": f"{KAFKA}{name}", **config} for name, config in CHAIN.items()]
    with bench(master="local[1]") as run:
        files = run.folder / "rows"
        frame = run.runtime.spark.range(0, rows, 1, 4).selectExpr(*ROW)
        frame.write.parquet(str(files))
        cases = Cases(run, files)
        copy = compare("no transform", rows, cases.ours(()), cases.by_hand(COPY_BY_HAND))
        chain = compare("eight transforms", rows, cases.ours(steps), cases.by_hand(BY_HAND))
        kafka = kafka_seconds(run.runtime.settings, rows)
    ours, theirs = statistics.median(chain.ours), statistics.median(kafka)
    print(
        f"\nKafka Connect's own eight, one thread: {rows / theirs:,.0f} records/s; "
        f"Headrace, one core, reading Parquet included: {rows / ours:,.0f}, "
        f"{theirs / ours:.1f} times as many"
    )
    figures = {pair.name: pair.figures() for pair in (copy, chain)}
    kafka_figures = {"kafka_s": kafka, "times_kafka": theirs / ours}
    save("transforms", {"rows": rows, **figures, **kafka_figures})


if __name__ == "__main__":
    main()
