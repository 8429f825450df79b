"""Spark's settings: ours, each with its reason, and the user's, which win."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol


class SparkSettings(Protocol):
    """The settings that decide how Spark starts; the caller reads and owns them."""

    @property
    def home(self) -> Path:
        """State; Spark's logs go to `logs` below it."""

    @property
    def cache(self) -> Path:
        """The jars and the class archive, which set-up can make again."""

    @property
    def java_home(self) -> Path | None:
        """A Java 17 or 21; None to have one looked for."""

    @property
    def master(self) -> str:
        """Spark's master."""

    @property
    def driver_memory(self) -> str:
        """The heap of Spark's driver, such as `1g`."""

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """The user's own Spark settings, which win over ours."""


LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
LOCAL_THREADS = re.compile(r"local\[(\d+)")
# Settings that name several things: the user's are added to ours.
LISTS = {
    "spark.driver.extraClassPath": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}

ALWAYS = {
    "spark.submit.deployMode": "client",
    # A worker runs millions of small jobs; each that Spark remembers is memory.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "5",
    # Tasks of many connectors share one session: none may wait for another's long job.
    "spark.scheduler.mode": "FAIR",
    # A timestamp means the same on every machine, and a bad cast is an error, not a null.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Or Spark takes ${...} out of every text in SQL: of topics, patterns and users' values.
    "spark.sql.variable.substitute": "false",
    # Files come in GB18030 and windows-1252 too; else Spark takes seven encodings only.
    "spark.sql.legacy.javaCharsets": "true",
    # INT96, the default, is deprecated and holds no statistics that Delta could use.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Files are listed by the driver; beyond 32 paths Spark would start a job for it.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Columns of their own for what a VARIANT often has would be as deep as that is, and no
    # reader but Spark's takes them.
    "spark.sql.variant.inferShreddingSchema": "false",
    # Fewer, larger batches to and from Python: the default is 10,000 rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A condition on n columns that have other names further on, as one that finds malformed
    # rows has, becomes 2^n conditions: a hundred columns would be planned for ever.
    "spark.sql.constraintPropagation.enabled": "false",
    # No Hive: its start takes seconds.
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 makes each commit to a small table take seconds.
    "spark.databricks.delta.snapshotPartitions": "1",
}


def spark_conf(
    settings: SparkSettings,
    *,
    app_name: str,
    jars: Collection[Path],
    archive: Path | None,
    short_lived: bool,
) -> dict[str, str]:
    """Build all of Spark's settings."""
    conf = ALWAYS | {
        "spark.app.name": app_name,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.defaultJavaOptions": _java_options(
            settings, archive, short_lived=short_lived
        ),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.sql.warehouse.dir": (settings.home / "warehouse").as_uri(),
    }
    if is_local(settings.master):
        conf |= _local(settings.master)
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
    return _overridden(conf, settings.spark_conf)


def is_local(master: str) -> bool:
    """Return whether Spark's driver is its only process."""
    return master.partition("[")[0] == "local"


def _local(master: str) -> dict[str, str]:
    threads = LOCAL_THREADS.match(master)
    cores = int(threads[1]) if threads else os.cpu_count() or 1
    return {
        # Nobody else is to reach the driver, and its address may change under a laptop.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Of the default of 200, all but a few would be empty; adaptive execution joins them.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.default.parallelism": str(cores),
        # Python workers run our interpreter, which has our modules.
        "spark.python.daemon.module": "headrace.python_daemon",
    }


def _java_options(settings: SparkSettings, archive: Path | None, *, short_lived: bool) -> str:
    options = [
        f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        f"-Dheadrace.log={settings.home / 'logs' / 'spark.log'}",
        # Hadoop runs `chmod` for each file and folder that it makes on a local disk. Without
        # a helper process between them that takes 1.1 ms and not 1.9.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # A JVM that lacks memory does not work any more, and may not end either.
        "-XX:+ExitOnOutOfMemoryError",
    ]
    if archive is not None:
        options.append(f"-XX:SharedArchiveFile={archive}")
    if short_lived:
        # Only the first, quick compiler: the second pays off after a minute. The simpler
        # collector is 0.3 s sooner over the first jobs.
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC"]
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def _overridden(conf: dict[str, str], users: Mapping[str, str]) -> dict[str, str]:
    merged = {**conf, **users}
    for name, separator in LISTS.items():
        both = [part for part in (conf.get(name), users.get(name)) if part]
        if both:
            merged[name] = separator.join(both)
    return merged
