"""Makes a machine ready for Spark, so that later starts are quick and need no network."""

from collections.abc import Callable

from headrace.spark.archive import archive_file, make_archive
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.java import find_java
from headrace.spark.settings import SparkSettings

__all__ = ["prepare"]


def prepare(settings: SparkSettings, report: Callable[[str], None]) -> None:
    """Fetch the jars, check all of them, and make the class archive; again does nothing.

    Called at set-up, once per machine and release; the first call takes about a minute.

    Args:
        settings: Where the cache is, which Java to take, and Ivy's mirrors.
        report: Told, in words, of each step.

    Raises:
        SetupError: There is no Java, a jar cannot be fetched, or Spark does not start.
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
        report("making the class archive, which halves the time of a start")
        make_archive(settings, archive)
    report(f"class archive {archive}")
