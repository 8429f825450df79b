"""JDBC drivers that configurations name, and their way into the Spark that runs.

A connector whose settings derive from ``DriverSettings`` takes the keys ``driver.coordinates``,
``driver.path`` and ``driver.sha256``, and calls ``load_driver`` where it connects: when a task
or a connector starts, or in ``examine``. Servers refuse drivers that their setting
``allowed_drivers`` does not let through before any of that is called.
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
    """A JDBC driver: jars on a registry, or one on this machine.

    Args:
        coordinates: Maven coordinates, ``group:artifact:version``, of the driver's jar and of
            those that it needs beside it: none is looked for.
        path: The driver's jar in a file, instead of coordinates.
        sha256: The hashes of the jars, in their order; none for jars that have to stay what
            they were when they were first fetched.
    """

    coordinates: tuple[str, ...] = ()
    path: str | None = None
    sha256: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedDriver:
    """A driver that Spark can use, on the driver and on executors.

    Args:
        spark: The session that has it. It ends with its JVM: keep it no longer than a task.
        class_name: The value of the option ``driver`` of Spark's reader and writer.
    """

    spark: SparkSession
    class_name: str


DriverLoader: TypeAlias = Callable[[JdbcDriver, str], LoadedDriver]

_loader: DriverLoader | None = None


def set_driver_loader(loader: DriverLoader | None) -> DriverLoader | None:
    """Say what loads drivers in this process; return what did before. The runtime calls it."""
    global _loader
    before, _loader = _loader, loader
    return before


def loads_drivers() -> bool:
    """Return whether ``load_driver`` can be called: whether Spark may run in this process.

    For class methods such as ``examine``, which also run where it does not.
    """
    return _loader is not None


def load_driver(driver: JdbcDriver, url: str) -> LoadedDriver:
    """Fetch a driver's jars if they are not there, and have the running Spark use them.

    The first call on a machine takes some seconds, each other a few milliseconds. Spark is
    started where it does not run yet. Call it at each start of a task: Spark may be another
    one then. A JVM uses one version of a driver, whoever has asked for it first.

    Args:
        driver: What is loaded.
        url: The URL that it is for; where the jars hold several drivers, it decides. It is
            not shown.

    Raises:
        ConfigError: There is no such jar, it is not what it was, it holds no driver, none for
            this URL, or another version of it is in use.
        SetupError: No Spark can run here, as in the host of a capture.
    """
    if _loader is None:
        raise SetupError(
            problem="JDBC drivers need Spark, which does not run in this process.",
            fix="Call load_driver in tasks that Spark runs, and where loads_drivers() holds.",
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
            fix = "Write what `sha256sum` prints of the jar."
            raise invalid(name, each, "Expected 64 hexadecimal digits", fix=fix)


def _fitting(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    def several(key: str) -> int:
        return len([each for each in str(props.get(key) or "").split(",") if each.strip()])

    jars, hashes = several("driver.coordinates"), several("driver.sha256")
    if jars and props.get("driver.path"):
        problem = "Both driver.coordinates and driver.path are set."
        yield ConfigError(problem, field="driver.path", fix="Remove one of them.")
    elif hashes and hashes != (jars or 1):
        problem = f"There are {hashes} hashes of {jars or 1} jars."
        fix = "Write one for each jar, in the same order, or none."
        yield ConfigError(problem, field="driver.sha256", fix=fix)


class DriverSettings(Settings, group="Driver"):
    """The JDBC driver of a connector.

    Trap: a derived class with ``rules`` of its own has to repeat ``*DriverSettings.rules``.
    """

    rules: ClassVar[tuple[Rule, ...]] = (_fitting,)

    driver_coordinates: tuple[str, ...] = setting(
        "Maven coordinates of the JDBC driver, such as com.h2database:h2:2.3.232; those of "
        "other jars that it needs follow after commas. They are fetched once and kept.",
        default=(),
        importance=Importance.HIGH,
        meaning=Meaning.DRIVER,
        validator=Lambda(_check_coordinates, "group:artifact:version, ..."),
    )
    driver_path: str | None = setting(
        "The jar of a JDBC driver that is on no registry: a file, instead of coordinates.",
        default=None,
        meaning=Meaning.DRIVER,
        validator=Lambda(_check_path, "an absolute path"),
    )
    driver_sha256: tuple[str, ...] = setting(
        "The SHA-256 of each of the driver's jars, in their order. Without it a jar has to "
        "stay what it was when it was first fetched.",
        default=(),
        importance=Importance.LOW,
        validator=Lambda(_check_sha256, "64 hexadecimal digits, ..."),
    )

    @property
    def driver(self) -> JdbcDriver:
        """The driver, to be loaded."""
        return JdbcDriver(
            coordinates=self.driver_coordinates,
            path=self.driver_path,
            sha256=tuple(each.lower() for each in self.driver_sha256),
        )
