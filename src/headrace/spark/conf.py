"""Spark's settings: ours, with their reasons, and the user's, which override ours."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol


class SparkSettings(Protocol):
    """The settings that determine how Spark starts; the caller reads and owns them."""

    @property
    def home(self) -> Path:
        """The home folder; Spark's logs go to its folder `logs`."""

    @property
    def cache(self) -> Path:
        """The folder of the jars and the class archive, which setup can create again."""

    @property
    def java_home(self) -> Path | None:
        """The home of a Java 17 or 21; None to search for one."""

    @property
    def master(self) -> str:
        """Spark's master."""

    @property
    def driver_memory(self) -> str:
        """The heap of Spark's driver, such as `1g`."""

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """The user's own Spark settings, which override ours."""


LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
LOCAL_THREADS = re.compile(r"local\[(\d+)")
# Settings with lists as values: the user's values are appended to ours.
LISTS = {
    "spark.driver.extraClassPath": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}

ALWAYS = {
    "spark.submit.deployMode": "client",
    # A worker runs millions of small jobs; each job that Spark retains takes memory.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "5",
    # Tasks of many connectors share one session: a long job must not block the others.
    "spark.scheduler.mode": "FAIR",
    # A timestamp means the same on every machine, and a bad cast is an error, not a null.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Otherwise Spark replaces ${...} in all SQL strings: of topics, patterns and users' values.
    "spark.sql.variable.substitute": "false",
    # Files may be in GB18030 or windows-1252; by default Spark supports only seven encodings.
    "spark.sql.legacy.javaCharsets": "true",
    # INT96, the default, is deprecated and has no statistics for Delta.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The driver lists files; by default Spark starts a job to list more than 32 paths.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Shredded columns for the frequent fields of a VARIANT would be nested as deep as the
    # fields, and only Spark can read them.
    "spark.sql.variant.inferShreddingSchema": "false",
    # Fewer, larger batches to and from Python: the default is 10,000 rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark expands a condition on n columns that are renamed later, such as the check for
    # malformed rows, to 2^n conditions: planning a hundred columns would never end.
    "spark.sql.constraintPropagation.enabled": "false",
    # By default 100 compiled classes, of which a batch needs several: with some twenty
    # connectors, each batch would be compiled anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
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
    one_compiler: bool,
) -> dict[str, str]:
    """Build all of Spark's settings."""
    conf = ALWAYS | {
        "spark.app.name": app_name,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.defaultJavaOptions": _java_options(
            settings, archive, short_lived=short_lived, one_compiler=one_compiler
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
        # Only this machine may reach the driver; the address of a laptop may change.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Its users may not: Spark's own ports stop the executor for whoever asks. No other
        # process connects to them here, so Spark makes a secret that only the JVM knows.
        "spark.authenticate": "true",
        # Most of the default 200 partitions would be empty; adaptive execution coalesces them.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.default.parallelism": str(cores),
        # Python workers run our interpreter, which has our modules.
        "spark.python.daemon.module": "headrace.python_daemon",
    }


_OPTIMIZED_AFTER = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
"""Ten times Java's defaults for the calls and loops after which it optimizes a method.

Spark's code for rows gets there within a second, but its planning, which would take the
processors in the first minute, does not.
"""


_SPACE_FOR_CODE = "-XX:ReservedCodeCacheSize=240m"
"""Java's default with both compilers. With one it is 48 MB, which Spark fills in minutes: Java
then discards compiled methods that it needs again.
"""


def _java_options(
    settings: SparkSettings, archive: Path | None, *, short_lived: bool, one_compiler: bool
) -> str:
    options = [
        f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        f"-Dheadrace.log={settings.home / 'logs' / 'spark.log'}",
        # Hadoop runs `chmod` for each file and folder that it creates on a local disk. Without
        # a helper process that takes 1.1 ms instead of 1.9 ms.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # A JVM that is out of memory no longer works, and may not end either.
        "-XX:+ExitOnOutOfMemoryError",
    ]
    if archive is not None:
        options.append(f"-XX:SharedArchiveFile={archive}")
    if one_compiler:
        # The optimizing compiler pays off after some seconds of work on rows.
        options += ("-XX:TieredStopAtLevel=1", _SPACE_FOR_CODE)
    else:
        options += (f"-XX:{name}={value}" for name, value in _OPTIMIZED_AFTER.items())
    if short_lived:
        # The simpler garbage collector saves 0.3 s over the first jobs.
        options.append("-XX:+UseParallelGC")
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def _overridden(conf: dict[str, str], users: Mapping[str, str]) -> dict[str, str]:
    merged = {**conf, **users}
    for name, separator in LISTS.items():
        both = [part for part in (conf.get(name), users.get(name)) if part]
        if both:
            merged[name] = separator.join(both)
    return merged
