"""Loads JDBC drivers into a running Spark session."""

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
from headrace.spark.jvm import find_java, gateway_of

_SERVICES = "META-INF/services/java.sql.Driver"
"""The entry of a jar that lists its drivers, since JDBC 4.0."""
_lock = threading.Lock()


@dataclass(frozen=True)
class Drivers:
    """Loads drivers into the current session. Thread-safe.

    In Spark's driver process, a jar is added to the class loader that Spark created for
    `spark.jars`: all threads that run calls from Python use it, and it is the parent of a local
    executor's class loader. `ADD JAR` and `addArtifacts` only affect the calling thread of the
    driver process, or none. Executors in other processes load the jar with their next task.
    Spark registers one driver per class name, so two versions of a driver cannot be used at
    once.
    """

    settings: SparkSettings
    session: Callable[[], SparkSession]

    def load(self, driver: JdbcDriver, url: str) -> LoadedDriver:
        """Load a driver, see ``headrace.sdk.jdbc.load_driver``."""
        files = self._files(driver)
        names = [name for file in files for name in _class_names(file)]
        if not names:
            raise ConfigError(
                problem=f"{files[0].name} is not a JDBC driver: it has no {_SERVICES}.",
                field=_field(driver),
                fix="Set it to the jar that contains the driver.",
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
                problem="No JDBC driver is set.",
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
            problem=f"{path} does not match driver.sha256: its SHA-256 is {found}.",
            field="driver.sha256",
            fix="Find out why the file changed; set the new hash only if you trust it.",
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
    """Raise ConfigError if the JVM has loaded a driver's class from another jar."""
    found = loader.getResource(f"{name.replace('.', '/')}.class")
    if found is None:
        return
    jar = str(found.toString()).removeprefix("jar:").rpartition("!/")[0]
    has = Path(unquote(urlparse(jar).path)).resolve()
    if has not in {file.resolve() for file in files}:
        raise ConfigError(
            problem=f"Spark has already loaded {name} from {has}; it uses one version of a "
            "driver.",
            field=_field(driver),
            fix="Set that version, or its jar in driver.path; or stop the connectors that use "
            "it, and restart Headrace.",
        )


def _chosen(jvm: Any, names: Sequence[str], url: str, driver: JdbcDriver) -> str:
    """Return the driver class that accepts a URL."""
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
                fix="If a class is missing, add the coordinates of the jar that contains it, "
                "and restart Headrace.",
            ) from None
    raise ConfigError(
        problem=f"The driver {', '.join(names)} does not accept the connector's URL.",
        field=_field(driver),
        fix="Correct the prefix of the URL, such as jdbc:h2:, or set another driver.",
    )
