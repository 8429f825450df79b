"""The JVM beside this process: started with what it needs, stopped for certain."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark.conf import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from headrace.sdk.errors import SetupError
from headrace.spark.java import Java

__all__ = ["PATIENCE", "close_gateway", "open_gateway", "spark_environment"]

# Arguments of a process are seen by every user of the machine, so secrets are not among them.
# The pattern is the default of spark.redaction.regex.
SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
PATIENCE = timedelta(seconds=10)
LOG_TAIL_CHARS = 2000


@contextmanager
def spark_environment(java: Java) -> Iterator[None]:
    """Set the variables that PySpark takes from the environment only, and put them back.

    Without PYSPARK_PYTHON, Spark's Python workers are whatever python3 is first on PATH; with
    another SPARK_HOME, the jars are of another release than the Python side.
    """
    wanted = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    }
    environment = os.environ  # noqa: TID251 (PySpark reads these nowhere else)
    before = {name: environment.get(name) for name in wanted}
    environment.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def open_gateway(conf: Mapping[str, str], *, log: Path) -> JavaGateway:
    """Start a JVM and connect to it. Call inside `spark_environment`.

    Args:
        conf: Spark's settings. Those whose names look secret are left out: give them to the
            SparkContext.
        log: What the JVM and Spark's Python workers print is added to this file.

    Raises:
        SetupError: The JVM did not start; the end of its output is in the message.
    """
    spark_conf = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        if not SECRET.search(name):
            spark_conf.set(name, value)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        start = output.tell()
        try:
            gateway = launch_gateway(spark_conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            with log.open("rb") as told:
                told.seek(start)
                tail = told.read().decode(errors="replace").strip()[-LOG_TAIL_CHARS:]
            raise SetupError(
                problem=f"Spark's Java process did not start: {tail or 'it said nothing'}",
                fix=f"Check driver_memory and spark_conf; the whole output is in {log}.",
            ) from None
    return gateway


def close_gateway(gateway: JavaGateway, patience: timedelta = PATIENCE) -> None:
    """Stop the JVM, and return when it is gone; a JVM that takes too long is killed.

    It ends by itself when its input closes, so it does not outlive this process either.
    """
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(patience.total_seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
