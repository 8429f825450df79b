"""How fast JSON and Avro are read and written, beside Kafka Connect's and Spark's functions.

Each is given the same records on one core: Kafka's converter in one thread of a JVM of its
own, Spark's functions and ours on a session with one thread. As Spark's Python workers run
beside its JVM, the CPU time of all processes is counted too.
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import bench, cpu_seconds, machine, save, timed
from pyspark.sql import DataFrame, SparkSession

from headrace.bootstrap import Runtime
from headrace.dataplane.conversion import ConvertingReader, PartConverter, encoded
from headrace.dataplane.jars import JarCache, locked_jars
from headrace.dataplane.java import find_java
from headrace.dataplane.records import record_frame
from headrace.dataplane.sources import SourceFrame
from headrace.plugins import Registry
from headrace.schemaregistry import EmbeddedRegistry
from headrace.sdk import ConverterContext, Lag, Position, ReadLimit, RecordPart, Schema, Type
from headrace.sdk.connectjson import connect_json
from headrace.settings import Settings, load_settings

ROWS = 600_000
KAFKA_ROWS = 300_000  # it has to hold them; they cost it the same however many they are
ROUNDS = 5
ROOT = Path(__file__).parents[1]
PARTS = {
    "id": Schema.int64(optional=True),
    "name": Schema.string(optional=True),
    "amount": Schema.float64(optional=True),
    "active": Schema.boolean(optional=True),
    "city": Schema.string(optional=True),
    "qty": Schema.int64(optional=True),
    "note": Schema.string(optional=True),
}
# Nulls are written, as Kafka Connect and Headrace write them, and bytes are made.
TO_JSON = "CAST(to_json(value, map('ignoreNullFields', 'false')) AS BINARY)"
AVRO = {
    Type.INT64: "long",
    Type.STRING: "string",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
}
DDL = (
    "id BIGINT, name STRING, amount DOUBLE, active BOOLEAN, city STRING, qty BIGINT, "
    "note STRING"
)


class Given:
    """A source that has one frame."""

    def __init__(self, frame: DataFrame) -> None:
        """Give ``frame``."""
        self.frame = frame

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Stay."""
        return start

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Know none."""
        return Lag()

    def acknowledge(self, position: Position) -> None:
        """Take it."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """Return the frame."""
        return SourceFrame(self.frame)


def rows() -> list[dict[str, Any]]:
    """Return the records."""
    return [
        {
            "id": n,
            "name": f"customer {n}",
            "amount": n * 0.37,
            "active": n % 2 == 0,
            "city": f"city{n % 100}",
            "qty": n % 50,
            "note": None if n % 3 else 'a "quoted" é',
        }
        for n in range(ROWS)
    ]


def converter(schemas: str) -> PartConverter:
    """Return our JSON converter."""
    plugin = Registry().converter("JsonConverter")
    config = plugin.config_def().parse({"schemas.enable": schemas})
    context = ConverterContext(part=RecordPart.VALUE, topic="t")
    return PartConverter(RecordPart.VALUE, "JsonConverter", plugin(config, context))


def decode(spark: SparkSession, frame: DataFrame, schemas: str, folder: Path) -> DataFrame:
    """Return the frame as our converter reads it."""
    reader = ConvertingReader(Given(frame), [converter(schemas)], folder / "decoded")
    found = reader.read(spark, Position(), Position()).frame
    assert found is not None
    return found.select("value", "error")


def encode(frame: DataFrame, schemas: str) -> DataFrame:
    """Return the frame as our converter writes it."""
    records = encoded(record_frame(frame, "t"), [converter(schemas)])
    return records.frame.selectExpr(records.shape.value.sql())


def avro(registry: EmbeddedRegistry) -> PartConverter:
    """Return our Avro converter."""
    plugin = Registry().converter("AvroConverter")
    context = ConverterContext(part=RecordPart.VALUE, topic="t", registry=registry)
    made = plugin(plugin.config_def().parse({}), context)
    return PartConverter(RecordPart.VALUE, "AvroConverter", made)


def measured(make: Callable[[], DataFrame]) -> dict[str, float]:
    """Return the median wall time of some warm rounds, and that of their CPU time."""
    walls, cpus = [], []
    for _ in range(ROUNDS + 1):
        before = cpu_seconds()
        walls.append(timed(lambda: make().write.format("noop").mode("overwrite").save()))
        cpus.append(cpu_seconds() - before)
    return {"wall_s": statistics.median(walls[1:]), "cpu_s": statistics.median(cpus[1:])}


def kafka(settings: Settings, lines: Path, schemas: str) -> dict[str, float]:
    """Return the seconds that Kafka's converter takes."""
    java = find_java(settings.java_home)
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    jars = cache.resolve(locked_jars(lock=ROOT / "tests" / "differential" / "jars.toml"))
    path = ":".join(str(jar) for jar in jars)
    driver = Path(__file__).with_name("JsonSpeed.java")
    command = [str(java.home / "bin" / "java"), "-Xmx1g", "-cp", path, str(driver)]
    answer = subprocess.run(
        [*command, str(lines), schemas], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def main() -> None:
    """Measure both forms of JSON, and Avro with its schema in a registry, both ways."""
    print(machine())
    print(f"{ROWS:,} records, one core; rows/s, in brackets per CPU-second of all processes")
    print("| case | Headrace | Spark's function | Kafka's converter |\n|---|---|---|---|")
    figures: dict[str, object] = {"rows": ROWS}
    with bench(master="local[1]", driver_memory="1g") as here:
        for schemas in ("false", "true"):
            figures |= _form(here.runtime.spark, here.folder, schemas)
        figures |= _avro(here.runtime, here.folder, figures)
    save("converters", figures)


def _form(spark: SparkSession, folder: Path, schemas: str) -> dict[str, object]:
    records = rows()
    head = {"schema": connect_json(Schema.struct(PARTS))}
    trees = records if schemas == "false" else [{**head, "payload": r} for r in records]
    texts = [json.dumps(t, separators=(",", ":"), ensure_ascii=False) for t in trees]
    lines = folder / f"{schemas}.jsonl"
    lines.write_text("\n".join(texts[:KAFKA_ROWS]) + "\n")
    raw = folder / f"{schemas}.parquet"
    pq.write_table(pa.table({"value": [text.encode() for text in texts]}), raw)
    typed = folder / "typed.parquet"
    pq.write_table(pa.table({"value": records}), typed)
    ddl = f"STRUCT<{DDL}>" if schemas == "false" else f"STRUCT<payload: STRUCT<{DDL}>>"

    by_spark = f"from_json(CAST(value AS STRING), '{ddl}') AS value"
    theirs = kafka(load_settings(), lines, schemas)
    cases = {
        "decode": (
            lambda: decode(spark, spark.read.parquet(str(raw)), schemas, folder),
            lambda: spark.read.parquet(str(raw)).selectExpr(by_spark),
        ),
        "encode": (
            lambda: encode(spark.read.parquet(str(typed)), schemas),
            lambda: spark.read.parquet(str(typed)).selectExpr(f"{TO_JSON} AS value"),
        ),
    }
    form = "JSON with schema" if schemas == "true" else "JSON"
    figures: dict[str, object] = {}
    for name, (ours, spark_own) in cases.items():
        mine, other = measured(ours), measured(spark_own)
        seconds = theirs[f"{name}_s"] * ROWS / KAFKA_ROWS
        cells = [f"{ROWS / f['wall_s']:,.0f} ({ROWS / f['cpu_s']:,.0f})" for f in (mine, other)]
        print(
            f"| {form}, {name} | {cells[0]} | {cells[1]} | {ROWS / seconds:,.0f} |", flush=True
        )
        figures[f"{form}, {name}"] = {"ours": mine, "spark": other, "kafka_s": seconds}
    return figures


def _avro(runtime: Runtime, folder: Path, figures: Mapping[str, object]) -> dict[str, object]:
    """Measure Avro; Kafka Connect has none, so its figure is that of JSON without schema."""
    spark, each = runtime.spark, avro(runtime.schema_registry)
    typed, raw = str(folder / "typed.parquet"), str(folder / "avro.parquet")
    records = encoded(record_frame(spark.read.parquet(typed), "t"), [each])
    value = f"{records.shape.value.sql()} AS value"
    records.frame.selectExpr(value).write.parquet(raw)
    fields = [{"name": n, "type": ["null", AVRO[s.type]]} for n, s in PARTS.items()]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})

    def ours() -> DataFrame:
        reader = ConvertingReader(Given(spark.read.parquet(raw)), [each], folder / "decoded")
        found = reader.read(spark, Position(), Position()).frame
        assert found is not None
        return found.select("value", "error")

    def ours_written() -> DataFrame:
        records = encoded(record_frame(spark.read.parquet(typed), "t"), [each])
        return records.frame.selectExpr(records.shape.value.sql())

    def sparks(sql: str, path: str) -> Callable[[], DataFrame]:
        return lambda: spark.read.parquet(path).selectExpr(sql)

    cases = {
        "decode": (ours, sparks(f"from_avro(substring(value, 6), '{schema}') AS value", raw)),
        "encode": (ours_written, sparks(f"to_avro(value, '{schema}') AS value", typed)),
    }
    found: dict[str, object] = {}
    for name, (own, other) in cases.items():
        mine, theirs = measured(own), measured(other)
        json_case = figures[f"JSON, {name}"]
        assert isinstance(json_case, dict)
        cells = [
            f"{ROWS / f['wall_s']:,.0f} ({ROWS / f['cpu_s']:,.0f})" for f in (mine, theirs)
        ]
        beside = f"{ROWS / json_case['kafka_s']:,.0f} (its JSON)"
        print(f"| Avro, {name} | {cells[0]} | {cells[1]} | {beside} |", flush=True)
        found[f"Avro, {name}"] = {"ours": mine, "spark": theirs}
    return found


if __name__ == "__main__":
    main()
