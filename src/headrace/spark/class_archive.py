"""The class-data-sharing archive: Spark's classes in the JVM's format, for a faster start."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pyspark

from headrace.sdk.errors import SetupError
from headrace.sdk.location import Location
from headrace.spark.conf import SparkSettings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import Java, find_java

TRAINING_SECONDS = 900  # half a minute on a quiet machine


def archive_file(cache: Path, java: Java, jars: Collection[Path]) -> Path:
    """Return the archive's path for this Java, Spark and these jars; it may not exist."""
    parts = [java.build, str(java.home), pyspark.__version__, pyspark.__file__, *map(str, jars)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache / "archive" / f"{key}.jsa"


def make_archive(settings: SparkSettings, archive: Path) -> None:
    """Create the archive with a training run in a separate process; takes about half a minute.

    Raises:
        SetupError: The training run failed; the message names the file with its output.
    """
    with Location.of(archive.with_suffix(".lock")).lock():
        if not archive.is_file():
            _train(settings, archive)


def _train(settings: SparkSettings, archive: Path) -> None:
    unfinished = archive.with_suffix(".new")
    log = archive.with_suffix(".log")
    fix = f"See {log}; Headrace also runs without the archive, but starts more slowly."
    with log.open("wb") as output:
        try:
            # Our own interpreter and our own module.
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "headrace.spark.training", str(unfinished)],
                input=json.dumps(
                    {
                        "home": str(settings.home),
                        "cache": str(settings.cache),
                        "java_home": str(settings.java_home) if settings.java_home else None,
                        "driver_memory": settings.driver_memory,
                        "spark_conf": dict(settings.spark_conf),
                    }
                ).encode(),
                stdout=output,
                stderr=output,
                timeout=TRAINING_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            problem = f"The class archive was not created within {TRAINING_SECONDS} s."
            raise SetupError(problem, fix=fix) from error
    if done.returncode != 0 or not unfinished.is_file():
        problem = "The class archive could not be created."
        raise SetupError(problem, fix=fix)
    unfinished.replace(archive)
    _owner(archive).write_text(pyspark.__file__)
    _remove_superseded(archive)


def _owner(archive: Path) -> Path:
    """The file that names the installation of PySpark that an archive was made for."""
    return archive.with_suffix(".owner")


def _remove_superseded(newest: Path) -> None:
    """Remove archives that are no longer usable; each takes some 200 MB.

    Several installations share the folder, and each has one archive.
    """
    for archive in newest.parent.glob("*.jsa"):
        owner = _owner(archive)
        used_by = owner.read_text() if owner.is_file() else ""
        is_ours = used_by == pyspark.__file__
        if archive != newest and (is_ours or not Path(used_by).is_file()):
            archive.unlink()
            owner.unlink(missing_ok=True)


def prepare(settings: SparkSettings, report: Callable[[str], None]) -> None:
    """Fetch the jars, verify all of them, and create the class archive. Idempotent.

    Called at setup, once per machine and release; the first call takes about a minute.

    Args:
        settings: The cache folder, the Java, and Ivy's mirrors.
        report: Called with a message about each step.

    Raises:
        SetupError: Java is missing, a jar cannot be fetched, or Spark does not start.
    """
    java = find_java(settings.java_home)
    report(f"Java {java.version} at {java.home}")
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    jars = locked_jars()
    cache.recheck(jars)
    files = cache.resolve(jars, report=report)
    report(f"{len(files)} jars in {cache.folder}")
    archive = archive_file(settings.cache, java, files)
    if not archive.is_file():
        report("creating the class archive, which halves the start time")
        make_archive(settings, archive)
    report(f"class archive {archive}")
