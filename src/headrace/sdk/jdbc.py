"""JDBC drivers named in configurations, and how they are loaded into the running Spark.

A connector whose settings derive from ``DriverSettings`` has the keys ``driver.coordinates``,
``driver.path`` and ``driver.sha256``, and calls ``load_driver`` where it connects: when a task
or a connector starts, or in ``examine``. Before any of these calls, servers reject drivers that
their setting ``allowed_drivers`` does not allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.sdk.config import Importance, Lambda, Meaning, Rule, Settings, invalid, setting
from headrace.sdk.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COORDINATES = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9][A-Za-z0-9._+-]*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcDriver:
    """A JDBC driver: jars in a Maven repository, or a local jar.

    Args:
        coordinates: Maven coordinates, ``group:artifact:version``, of the driver's jar and of
            all its dependencies, which are not resolved automatically.
        path: The path of the driver's jar, instead of coordinates.
        sha256: The hashes of the jars, in the same order. If empty, the jars must stay the same
            as at their first download.
    """

    coordinates: tuple[str, ...] = ()
    path: str | None = None
    sha256: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedDriver:
    """A driver that Spark can use, on the driver and on executors.

    Args:
        spark: The session with the driver. It ends with its JVM: do not keep it longer than a
            task.
        class_name: The value for the option ``driver`` of Spark's reader and writer.
    """

    spark: SparkSession
    class_name: str


DriverLoader: TypeAlias = Callable[[JdbcDriver, str], LoadedDriver]

_loader: DriverLoader | None = None


def set_driver_loader(loader: DriverLoader | None) -> DriverLoader | None:
    """Set the driver loader of this process; return the previous one. Used by the runtime."""
    global _loader
    before, _loader = _loader, loader
    return before


def loads_drivers() -> bool:
    """Return whether ``load_driver`` can be called: whether Spark may run in this process.

    For class methods such as ``examine``, which also run in processes without Spark.
    """
    return _loader is not None


def load_driver(driver: JdbcDriver, url: str) -> LoadedDriver:
    """Download a driver's jars if needed, and load them into the running Spark.

    The first call on a machine takes some seconds, later calls a few milliseconds. Spark is
    started if it is not running. Call this function at each start of a task, because Spark may
    have been restarted. A JVM uses a single version of a driver: the first one loaded.

    Args:
        driver: The driver to load.
        url: The JDBC URL; if the jars contain several drivers, it selects one. It is not shown.

    Raises:
        ConfigError: The jar does not exist, has changed, contains no driver or none for this
            URL, or another version of the driver is in use.
        SetupError: Spark cannot run in this process, for example in the host of a capture.
    """
    if _loader is None:
        raise SetupError(
            problem="JDBC drivers need Spark, which does not run in this process.",
            fix="Call load_driver only in tasks that use Spark, or if loads_drivers() is true.",
        )
    return _loader(driver, url)


def _check_coordinates(name: str, value: object) -> None:
    for each in value if isinstance(value, list | tuple) else ():
        if not _COORDINATES.fullmatch(each):
            fix = "Write group:artifact:version, such as com.h2database:h2:2.3.232."
            raise invalid(name, each, "Expected Maven coordinates", fix=fix)


def _check_path(name: str, value: object) -> None:
    if isinstance(value, str) and not value.startswith("/"):
        raise invalid(name, value, "Expected an absolute path", fix="Begin it with /.")


def _check_sha256(name: str, value: object) -> None:
    for each in value if isinstance(value, list | tuple) else ():
        if not _SHA256.fullmatch(each):
            fix = "Use the output of `sha256sum` for the jar."
            raise invalid(name, each, "Expected 64 hexadecimal digits", fix=fix)


def _fitting(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    def several(key: str) -> int:
        return len([each for each in str(props.get(key) or "").split(",") if each.strip()])

    jars, hashes = several("driver.coordinates"), several("driver.sha256")
    if jars and props.get("driver.path"):
        problem = "Both driver.coordinates and driver.path are set."
        yield ConfigError(problem, field="driver.path", fix="Remove one of them.")
    elif hashes and hashes != (jars or 1):
        problem = f"There are {hashes} hashes for {jars or 1} jars."
        fix = "Set one hash for each jar, in the same order, or none."
        yield ConfigError(problem, field="driver.sha256", fix=fix)


class DriverSettings(Settings, group="Driver"):
    """The JDBC driver of a connector.

    Trap: a derived class with its own ``rules`` must include ``*DriverSettings.rules``.
    """

    rules: ClassVar[tuple[Rule, ...]] = (_fitting,)

    driver_coordinates: tuple[str, ...] = setting(
        "Maven coordinates of the JDBC driver, such as com.h2database:h2:2.3.232, followed by "
        "those of its dependencies, separated by commas. The jars are downloaded once and "
        "cached.",
        default=(),
        importance=Importance.HIGH,
        meaning=Meaning.DRIVER,
        validator=Lambda(_check_coordinates, "group:artifact:version, ..."),
    )
    driver_path: str | None = setting(
        "The path of the JDBC driver's jar, instead of coordinates, for a driver that is not "
        "in a Maven repository.",
        default=None,
        meaning=Meaning.DRIVER,
        validator=Lambda(_check_path, "an absolute path"),
    )
    driver_sha256: tuple[str, ...] = setting(
        "The SHA-256 of each of the driver's jars, in the same order. Without it, a jar must "
        "stay the same as at its first download.",
        default=(),
        importance=Importance.LOW,
        validator=Lambda(_check_sha256, "64 hexadecimal digits, ..."),
    )

    @property
    def driver(self) -> JdbcDriver:
        """The driver to load."""
        return JdbcDriver(
            coordinates=self.driver_coordinates,
            path=self.driver_path,
            sha256=tuple(each.lower() for each in self.driver_sha256),
        )
