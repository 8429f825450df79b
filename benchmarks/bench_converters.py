"""How fast JSON, Avro and Protobuf are read and written, beside Kafka Connect and Spark.

Each is given the same records on one core: Kafka's converter in one thread of a JVM of its
own, Spark's functions and ours on a session with one thread. As Spark's Python workers run
beside its JVM, the CPU time of all processes is counted too. Spark's own functions for Protobuf
are in a jar that Headrace does not have, so that there is no figure of theirs.
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import bench, cpu_seconds, machine, save, timed
from pyspark.sql import DataFrame, SparkSession

from headrace.dataplane.conversion import ConvertingReader, PartConverter, encoded
from headrace.dataplane.records import record_frame
from headrace.dataplane.sources import SourceFrame
from headrace.plugins import Registry
from headrace.runtime.app import Runtime
from headrace.sdk import ConverterContext, Lag, Position, ReadLimit, Schema, Type
from headrace.sdk.connectjson import connect_json
from headrace.sdk.converter import ArrowDecoder, RecordPart, RuntimeRegistry
from headrace.settings import Settings, load_settings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

ROWS = 600_000
KAFKA_ROWS = 300_000  # it has to hold them; they cost it the same however many they are
ROUNDS = 5
BATCH_ROWS = 65_536  # which Python workers get
WARM_UPS = 2  # the JVM still compiles in the first rounds
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
TEXT = "to_json(value, map('ignoreNullFields', 'false'))"
TO_JSON = f"CAST({TEXT} AS BINARY)"
HEAD = "X'0000000001'"
"""The wire form's five bytes: a hand-written job has to put them before each value too."""
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
AVRO_FIELDS = [{"name": n, "type": ["null", AVRO[s.type]]} for n, s in PARTS.items()]
AVRO_SCHEMA = json.dumps({"type": "record", "name": "R", "fields": AVRO_FIELDS})
CONVERTERS = {
    "Avro": "AvroConverter",
    "JSON Schema": "JsonSchemaConverter",
    "Protobuf": "ProtobufConverter",
}
KEYS = {"ProtobufConverter": {"optional.for.nullables": "true"}}  # or nulls come back as zeros
AVRO_SQL = {
    "decode": f"from_avro(substring(value, 6), '{AVRO_SCHEMA}') AS value",
    "encode": f"concat({HEAD}, to_avro(value, '{AVRO_SCHEMA}')) AS value",
}
JSON_SQL = {
    "decode": f"from_json(CAST(substring(value, 6) AS STRING), 'STRUCT<{DDL}>') AS value",
    "encode": f"concat({HEAD}, {TO_JSON}) AS value",
}


class Given:
    """A source that has the rows of one file."""

    def __init__(self, path: Path) -> None:
        """Read the file anew for each batch."""
        self._path = path

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Stay."""
        return start

    def ended(self, position: Position) -> bool:
        """Go on."""
        return False

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Know none."""
        return Lag()

    def acknowledge(self, position: Position) -> None:
        """Take it."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """Return the frame."""
        return SourceFrame(spark.read.parquet(str(self._path)))


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


def _decoding(
    spark: SparkSession, path: Path, each: PartConverter, folder: Path
) -> Callable[[], DataFrame]:
    """Return what reads a batch with our converter, as a task does again and again."""
    reader = ConvertingReader(Given(path), [each], folder / "decoded")

    def read() -> DataFrame:
        found = reader.read(spark, Position(), Position()).frame
        assert found is not None
        return found.select("value", "error")

    return read


def _encode(frame: DataFrame, each: PartConverter) -> DataFrame:
    """Return the frame as our converter writes it."""
    records = encoded(record_frame(frame, "t"), [each])
    return records.frame.selectExpr(f"{records.shape.value.sql()} AS value")


def remote(name: str, registry: RuntimeRegistry | None) -> PartConverter:
    """Return a converter of ours whose schemas are in a registry."""
    plugin = Registry().converter(name)
    context = ConverterContext(part=RecordPart.VALUE, topic=name, registry=registry)
    config = plugin.config_def().parse(KEYS.get(name, {}))
    return PartConverter(RecordPart.VALUE, name, plugin(config, context))


def measured(*sides: Callable[[], DataFrame]) -> list[dict[str, float]]:
    """Return the medians of each side's wall and CPU times, in warm rounds that take turns."""
    all_ = [(make, _Times()) for make in sides]
    for number in range(WARM_UPS + ROUNDS):
        for make, times in all_ if number % 2 else reversed(all_):
            before = cpu_seconds()
            times.walls.append(timed(partial(_write, make)))
            times.cpus.append(cpu_seconds() - before)
    return [times.medians() for _, times in all_]


def _write(make: Callable[[], DataFrame]) -> None:
    make().write.format("noop").mode("overwrite").save()


@dataclass
class _Times:
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        return {
            "wall_s": statistics.median(self.walls[WARM_UPS:]),
            "cpu_s": statistics.median(self.cpus[WARM_UPS:]),
        }


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
    """Measure five forms, both ways: of three the schema is in a registry."""
    print(machine())
    print(f"{ROWS:,} records, one core; rows/s, in brackets per CPU-second of all processes")
    print("| case | Headrace | Spark's function | Kafka's converter |\n|---|---|---|---|")
    figures: dict[str, object] = {"rows": ROWS}
    with bench(master="local[1]", driver_memory="1g") as here:
        for schemas in ("false", "true"):
            figures |= _form(here.runtime.spark, here.folder, schemas)
        for form, own in {"Avro": AVRO_SQL, "JSON Schema": JSON_SQL, "Protobuf": {}}.items():
            figures |= _remote(here.runtime, here.folder, form, own, figures)
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

    beside = (
        f"concat('{json.dumps(head, separators=(',', ':'))[:-1]},\"payload\":', {TEXT}, '}}')"
    )
    to_json = TO_JSON if schemas == "false" else f"CAST({beside} AS BINARY)"
    by_spark = f"from_json(CAST(value AS STRING), '{ddl}') AS value"
    theirs = kafka(load_settings(), lines, schemas)
    each = converter(schemas)
    cases = {
        "decode": (
            _decoding(spark, raw, each, folder),
            lambda: spark.read.parquet(str(raw)).selectExpr(by_spark),
        ),
        "encode": (
            lambda: _encode(spark.read.parquet(str(typed)), each),
            lambda: spark.read.parquet(str(typed)).selectExpr(f"{to_json} AS value"),
        ),
    }
    form = "JSON with schema" if schemas == "true" else "JSON"
    alone = _alone(each, texts)
    print(f"| {form}, decode, in memory | {ROWS / alone:,.0f} | | {_rate(theirs, 'decode')} |")
    figures: dict[str, object] = {f"{form}, decode, in memory": alone}
    for name, (ours, spark_own) in cases.items():
        mine, other = measured(ours, spark_own)
        seconds = theirs[f"{name}_s"] * ROWS / KAFKA_ROWS
        cells = [f"{ROWS / f['wall_s']:,.0f} ({ROWS / f['cpu_s']:,.0f})" for f in (mine, other)]
        print(
            f"| {form}, {name} | {cells[0]} | {cells[1]} | {_rate(theirs, name)} |", flush=True
        )
        figures[f"{form}, {name}"] = {"ours": mine, "spark": other, "kafka_s": seconds}
    return figures


def _rate(theirs: Mapping[str, float], name: str) -> str:
    return f"{KAFKA_ROWS / theirs[f'{name}_s']:,.0f}"


def _alone(each: PartConverter, texts: list[str]) -> float:
    """Return the seconds of our decoder alone, from bytes to columns, as Kafka's has."""
    decoder = each.converter.decoder()
    assert isinstance(decoder, ArrowDecoder)
    batches = [
        pa.array([text.encode() for text in texts[start : start + BATCH_ROWS]], pa.binary())
        for start in range(0, ROWS, BATCH_ROWS)
    ]

    def decode() -> None:
        for batch in batches:
            assert not decoder.decode(batch).faults

    return statistics.median([timed(decode) for _ in range(WARM_UPS + ROUNDS)][WARM_UPS:])


def _selected(spark: SparkSession, path: str, sql: str) -> DataFrame:
    return spark.read.parquet(path).selectExpr(sql)


def _remote(
    runtime: Runtime,
    folder: Path,
    form: str,
    sparks: Mapping[str, str],
    figures: Mapping[str, object],
) -> dict[str, object]:
    """Measure a form whose schema is in a registry.

    Kafka Connect has no converter for it, so its figure is that of JSON without schema.
    """
    spark, each = runtime.spark, remote(CONVERTERS[form], runtime.schema_registry)
    typed, raw = str(folder / "typed.parquet"), str(folder / f"{form}.parquet")
    _encode(spark.read.parquet(typed), each).write.parquet(raw)
    ours: dict[str, Callable[[], DataFrame]] = {
        "decode": _decoding(spark, Path(raw), each, folder),
        "encode": lambda: _encode(spark.read.parquet(typed), each),
    }
    files = {"decode": raw, "encode": typed}
    theirs: dict[str, Callable[[], DataFrame]] = {
        name: partial(_selected, spark, files[name], sql) for name, sql in sparks.items()
    }
    found: dict[str, object] = {}
    for name, own in ours.items():
        both = [own, theirs[name]] if name in theirs else [own]
        mine, other = [*measured(*both), None][:2]
        json_case = figures[f"JSON, {name}"]
        assert isinstance(json_case, dict)
        cells = [
            "" if f is None else f"{ROWS / f['wall_s']:,.0f} ({ROWS / f['cpu_s']:,.0f})"
            for f in (mine, other)
        ]
        beside = f"{ROWS / json_case['kafka_s']:,.0f} (its JSON)"
        print(f"| {form}, {name} | {cells[0]} | {cells[1]} | {beside} |", flush=True)
        found[f"{form}, {name}"] = {"ours": mine, "spark": other}
    return found


if __name__ == "__main__":
    main()
