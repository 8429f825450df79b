"""JDBC drivers that come while Spark runs."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.sdk.errors import ConfigError, SetupError
from headrace.sdk.jdbc import JdbcDriver, LoadedDriver
from headrace.sdk.sensitive import masked
from headrace.spark.conf import SparkSettings
from headrace.spark.jars import Jar, JarCache, file_sha256
from headrace.spark.java import find_java
from headrace.spark.jvm import gateway_of

_SERVICES = "META-INF/services/java.sql.Driver"
"""Where a jar names its drivers, since JDBC 4.0."""
_lock = threading.Lock()


@dataclass(frozen=True)
class Drivers:
    """Loads drivers into the session that lives at the time. Any thread may use it.

    On the driver a jar is added to the class loader that Spark has made for `spark.jars`: that
    of all threads which Python's calls run in, and the parent of that of a local executor.
    `ADD JAR` and `addArtifacts` reach the calling thread of the driver, or none. Executors in
    other processes get it with their next task. Spark keeps one driver for each name of a
    class, so two versions of one driver cannot be used at once.
    """

    settings: SparkSettings
    session: Callable[[], SparkSession]

    def load(self, driver: JdbcDriver, url: str) -> LoadedDriver:
        """Do what ``headrace.sdk.jdbc.load_driver`` says."""
        files = self._files(driver)
        names = [name for file in files for name in _class_names(file)]
        if not names:
            raise ConfigError(
                problem=f"{files[0].name} is no JDBC driver: it has no {_SERVICES}.",
                field=_field(driver),
                fix="Name the jar that has the driver.",
            )
        spark = self.session()
        jvm = gateway_of(spark).jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        with _lock:
            for name in names:
                _require_version(loader, name, files, driver)
            loaded = {str(url) for url in loader.getURLs()}
            for file in files:
                added = jvm.java.net.URL(file.as_uri())
                if str(added) not in loaded:
                    loader.addURL(added)
                    spark.sparkContext._jsc.addJar(file.as_uri())  # noqa: SLF001 - PySpark has no other
        return LoadedDriver(spark, _chosen(jvm, names, url, driver))

    def _files(self, driver: JdbcDriver) -> Sequence[Path]:
        if driver.path is not None:
            return [_local_file(driver, Path(driver.path))]
        hashes = driver.sha256 or (None,) * len(driver.coordinates)
        jars = [
            Jar(feature="driver", coordinates=each, sha256=sha256)
            for each, sha256 in zip(driver.coordinates, hashes, strict=True)
        ]
        if not jars:
            raise ConfigError(
                problem="No JDBC driver is named.",
                field="driver.coordinates",
                fix="Set it to Maven coordinates, such as com.h2database:h2:2.3.232, or "
                "driver.path to a jar.",
            )
        cache = JarCache(
            folder=self.settings.cache / "jars",
            java=find_java(self.settings.java_home),
            spark_conf=self.settings.spark_conf,
        )
        try:
            return cache.resolve(jars)
        except SetupError as error:
            raise ConfigError(error.problem, field=_field(driver), fix=error.fix) from None


def _field(driver: JdbcDriver) -> str:
    return "driver.coordinates" if driver.path is None else "driver.path"


def _local_file(driver: JdbcDriver, path: Path) -> Path:
    file = path.resolve()
    if not file.is_file():
        problem, fix = f"{path} does not exist.", "Correct the path, or put the jar there."
        raise ConfigError(problem, field="driver.path", fix=fix)
    found = file_sha256(file) if driver.sha256 else None
    if found is not None and found != driver.sha256[0]:
        raise ConfigError(
            problem=f"{path} is not the jar that driver.sha256 names: its SHA-256 is {found}.",
            field="driver.sha256",
            fix="Find out who changed it; name the new hash only if you trust it.",
        )
    return file


def _class_names(file: Path) -> list[str]:
    try:
        with zipfile.ZipFile(file) as jar:
            text = jar.read(_SERVICES).decode()
    except (KeyError, zipfile.BadZipFile):
        return []
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _require_version(loader: Any, name: str, files: Sequence[Path], driver: JdbcDriver) -> None:
    """Raise ConfigError if the JVM has a driver's class from elsewhere."""
    found = loader.getResource(f"{name.replace('.', '/')}.class")
    if found is None:
        return
    jar = str(found.toString()).removeprefix("jar:").rpartition("!/")[0]
    has = Path(unquote(urlparse(jar).path)).resolve()
    if has not in {file.resolve() for file in files}:
        raise ConfigError(
            problem=f"Spark has {name} from {has} already, and uses one version of a driver.",
            field=_field(driver),
            fix="Name that version, or its jar in driver.path; or stop the connectors that use "
            "it, and restart Headrace.",
        )


def _chosen(jvm: Any, names: Sequence[str], url: str, driver: JdbcDriver) -> str:
    """Return the driver among those of the jars that takes a URL."""
    registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    for name in names:
        try:
            registry.register(name)
            if registry.get(name).acceptsURL(url):
                return name
        except Py4JJavaError as error:
            why = masked(str(error.java_exception.toString()))
            raise ConfigError(
                problem=f"The driver {name} cannot be used: {why}.",
                field=_field(driver),
                fix="If a class is missing, add the coordinates of the jar that has it, and "
                "restart Headrace.",
            ) from None
    raise ConfigError(
        problem=f"The driver {', '.join(names)} does not take the connector's URL.",
        field=_field(driver),
        fix="Correct the beginning of the URL, such as jdbc:h2:, or name another driver.",
    )
