"""The training run that loads the classes of short commands; its exit writes the archive.

`python -m headrace.spark.training ARCHIVE`, with the settings as JSON on standard input.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.spark.session import close_session, open_session

__all__: list[str] = []

TO_WRITE = timedelta(minutes=2)  # the JVM writes the archive, some 200 MB, as it ends


@dataclass(frozen=True, kw_only=True)
class _Settings:
    home: Path
    cache: Path
    java_home: Path | None
    driver_memory: str
    spark_conf: Mapping[str, str]
    master: str = "local[2]"


def _main(archive: Path) -> None:
    settings_json = json.load(sys.stdin)
    users: dict[str, str] = settings_json["spark_conf"]
    # Suppress log lines about classes that cannot be archived (signed, too old).
    ours = f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds=error -Xlog:cds+dynamic=error'
    options = f"{users.get('spark.driver.extraJavaOptions', '')} {ours}".strip()
    settings = _Settings(
        home=Path(settings_json["home"]),
        cache=Path(settings_json["cache"]),
        java_home=Path(settings_json["java_home"]) if settings_json["java_home"] else None,
        driver_memory=settings_json["driver_memory"],
        spark_conf={**users, "spark.driver.extraJavaOptions": options},
    )
    spark = open_session(settings, app_name="headrace-setup")
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            _exercise(spark, Path(folder))
    finally:
        close_session(timeout=TO_WRITE)


def _exercise(spark: SparkSession, folder: Path) -> None:
    csv, lines = folder / "in.csv", folder / "in.jsonl"
    csv.write_text("id,name,at\n1,a,2026-01-01T00:00:00\n2,b,2026-01-02T00:00:00\n")
    lines.write_text("".join(json.dumps({"id": n, "tags": ["x"]}) + "\n" for n in (1, 2)))
    rows = spark.read.csv(str(csv), header=True, inferSchema=True)
    rows.write.parquet(str(folder / "parquet"))
    rows.write.json(str(folder / "json"))
    rows.write.csv(str(folder / "csv"))
    again = spark.read.parquet(str(folder / "parquet"))
    joined = again.join(spark.read.json(str(lines)), "id").where("name <> ''")
    joined.selectExpr("*", "try_cast(name AS int) AS n", "upper(name) AS u").collect()
    joined.groupBy("name").count().orderBy("count").collect()
    delta = str(folder / "delta")
    for _ in range(2):
        again.write.format("delta").mode("append").save(delta)
    spark.read.format("delta").load(delta).mapInArrow(
        lambda batches: batches, again.schema
    ).count()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
