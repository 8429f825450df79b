"""The JVM of this process: its Java, its start, its metrics, and its reliable stop."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TextIO

import psutil
import pyspark
from py4j.java_gateway import JavaGateway
from pyspark.conf import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.model import SparkUnavailableError
from headrace.permissions import private_opener
from headrace.sdk.errors import SetupError

# spark.apache.org/docs/4.2.0: "Spark runs on Java 17/21"
SUPPORTED = (17, 21)
WELL_KNOWN = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))
_VERSION = re.compile(r'version "((\d+)[^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java installation that Spark can use."""

    home: Path
    version: str
    build: str
    """The last line of `java -version`, which differs from build to build."""

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"


def find_java(requested: Path | None = None) -> Java:
    """Find a Java 17 or 21: the requested one, or on PATH, or in the systems' usual folders.

    Called once per process, before Spark starts; it runs `java -version`, some 50 ms.

    Raises:
        SetupError: None was found, or the requested one is missing or another version.
    """
    if requested is not None:
        java = _inspect(requested)
        if java is None:
            raise SetupError(
                problem=f"{requested} (from JAVA_HOME) is not a Java {_names()}.",
                fix="Correct JAVA_HOME, or unset it to search for a supported Java.",
            )
        return java
    for home in _candidates():
        java = _inspect(home)
        if java is not None:
            return java
    raise SetupError(
        problem=f"Found no Java {_names()}, which Spark needs.",
        fix="Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set "
        "JAVA_HOME.",
    )


def _names() -> str:
    return " or ".join(str(major) for major in SUPPORTED)


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("java")
    if on_path is not None:
        # bin/java is two levels below the home; on macOS it may be a stub, which _inspect skips
        yield Path(on_path).resolve().parent.parent
    for folder in WELL_KNOWN:
        for home in sorted(folder.glob("*")):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home


def _inspect(home: Path) -> Java | None:
    command = home / "bin" / "java"
    if not command.is_file():
        return None
    try:
        # The path is the user's own JAVA_HOME or PATH.
        output = subprocess.run(  # noqa: S603
            [command, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(output)
    if version is None or int(version[2]) not in SUPPORTED:
        return None
    return Java(home=home, version=version[1], build=output.strip().splitlines()[-1])


# Every user of the machine can see a process's arguments, so they must not contain secrets.
# The pattern is the default of spark.redaction.regex.
SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
STOP_TIMEOUT = timedelta(seconds=10)
_environment = threading.Lock()
LOG_TAIL_CHARS = 2000


@contextmanager
def spark_environment(java: Java) -> Iterator[None]:
    """Set the variables that PySpark reads only from the environment, and restore them after.

    Without PYSPARK_PYTHON, Spark's Python workers run the first python3 on PATH; with another
    SPARK_HOME, the jars are from another release than the Python side.
    """
    variables = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    }
    environment = os.environ  # noqa: TID251 (PySpark reads these nowhere else)
    with _environment:  # a jar may be fetched while Spark is restarted
        before = {name: environment.get(name) for name in variables}
        environment.update(variables)
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
        conf: Spark's settings. Settings with secret-looking names are omitted: pass them to
            the SparkContext.
        log: The output of the JVM and of Spark's Python workers is appended to this file.

    Raises:
        SetupError: The JVM did not start; the end of its output is in the message.
    """
    spark_conf = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        if not SECRET.search(name):
            spark_conf.set(name, value)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab", opener=private_opener) as output:
        start = output.tell()
        before = set(psutil.Process().children())
        try:
            gateway = launch_gateway(spark_conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            with log.open("rb") as written:
                written.seek(start)
                tail = written.read().decode(errors="replace").strip()[-LOG_TAIL_CHARS:]
            raise SetupError(
                problem=f"Spark's Java process did not start: {tail or 'no output'}",
                fix=f"Check driver_memory and spark_conf; the whole output is in {log}.",
            ) from None
        except BaseException:  # such as KeyboardInterrupt
            # PySpark has deleted the folder in which the JVM puts its port, so the JVM fails
            # before it watches its stdin, and its other threads would go on.
            for child in set(psutil.Process().children()) - before:
                with suppress(psutil.NoSuchProcess):
                    if "pyspark-shell" in child.cmdline():
                        child.kill()
            raise
    return gateway


def attach_gateway(port: int, secret: str, process: Any) -> JavaGateway:
    """Connect to a running JVM, with the variables that PySpark has for it.

    Raises py4j's errors if it does not respond.
    """
    where = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    environment = os.environ  # noqa: TID251 (PySpark reads these nowhere else)
    environment.update(where)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in where:
            del environment[name]
    gateway.proc = process
    return gateway


def close_gateway(gateway: JavaGateway, timeout: timedelta = STOP_TIMEOUT) -> None:
    """Stop the JVM, and return when it has ended; it is killed after the timeout.

    It also ends when its stdin closes, so it does not outlive this process.
    """
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(timeout.total_seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_AREAS = {"heap": "heap", "nonheap": "non-heap"}


@dataclass(frozen=True, slots=True)
class JvmFigures:
    """A snapshot of the JVM's metrics.

    Args:
        memory: Bytes, by area (``heap``, ``nonheap``) and by ``used``, ``committed``, ``max``;
            unlimited areas have no ``max``.
        collections: The number of garbage collections, by collector.
        collecting: The seconds spent in garbage collections, by collector.
        jobs: The number of active Spark jobs.
    """

    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    collections: Mapping[str, int] = field(default_factory=dict)
    collecting: Mapping[str, float] = field(default_factory=dict)
    jobs: int = 0


@dataclass
class JvmWatch:
    """Reads the metrics of a session's JVM in a few milliseconds; blocks if the JVM does.

    One call returns all metrics as JSON, from a library that Spark includes. The JVM's own
    beans cannot be called from here, as their classes are not exported.
    """

    session: Callable[[], SparkSession]
    _registered: tuple[SparkSession, tuple[Any, Any]] | None = None

    @property
    def pid(self) -> int | None:
        """The JVM's process id, if this process started it and it is running."""
        try:
            gateway = gateway_of(self.session())
        except SparkUnavailableError:
            return None
        process = getattr(gateway, "proc", None)
        return None if process is None else int(process.pid)

    def look(self) -> JvmFigures:
        """Return the current metrics. Raises py4j's errors if the JVM has ended."""
        session = self.session()
        writer, registry = self._gauges(session)
        gauges = json.loads(writer.writeValueAsString(registry))["gauges"]
        values = {name: gauge.get("value") for name, gauge in gauges.items()}
        jobs = session.sparkContext.statusTracker().getActiveJobsIds()
        return JvmFigures(
            memory={area: _memory(values, name) for area, name in _AREAS.items()},
            collections=_collectors(values, "count"),
            collecting={gc: ms / 1000 for gc, ms in _collectors(values, "time").items()},
            jobs=len(jobs),
        )

    def _gauges(self, session: SparkSession) -> tuple[Any, Any]:
        if self._registered is None or self._registered[0] is not session:
            self._registered = (session, _gauges(session))
        return self._registered[1]


def gateway_of(session: SparkSession) -> Any:
    """Return py4j's gateway to a session's JVM."""
    return session.sparkContext._gateway  # noqa: SLF001 - PySpark has no public access


def _gauges(session: SparkSession) -> tuple[Any, Any]:
    jvm = gateway_of(session).jvm
    metrics, seconds = jvm.com.codahale.metrics, jvm.java.util.concurrent.TimeUnit.SECONDS
    registry = metrics.MetricRegistry()
    registry.register("memory", metrics.jvm.MemoryUsageGaugeSet())
    registry.register("gc", metrics.jvm.GarbageCollectorMetricSet())
    writer = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    writer.registerModule(metrics.json.MetricsModule(seconds, seconds, False))  # noqa: FBT003
    return writer, registry


def _memory(values: Mapping[str, Any], area: str) -> dict[str, int]:
    found = {what: values.get(f"memory.{area}.{what}") for what in ("used", "committed", "max")}
    return {what: value for what, value in found.items() if value is not None and value >= 0}


def _collectors(values: Mapping[str, Any], what: str) -> dict[str, int]:
    """Return a metric of each garbage collector, by the collector's name."""
    return {
        name.removeprefix("gc.").removesuffix(f".{what}"): value
        for name, value in values.items()
        if name.startswith("gc.") and name.endswith(f".{what}")
    }


_LOCK = ".lock"


def own_folder() -> Path | None:
    """Create and return the folder of a user's processes, which only that user can access.

    None if another user has created it.
    """
    folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_ours = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    return folder if is_ours else None


@dataclass(frozen=True)
class Scratch:
    """A folder, and the lock that its live process holds.

    Spark cleans up its local folders when it ends normally. A killed JVM leaves them, and a
    server whose JVM dies now and then would fill the disk.
    """

    folder: Path
    _locked: TextIO

    @classmethod
    def make(cls, root: Path | None = None) -> Self:
        """Create a folder, and remove folders of processes that have ended."""
        root = root or own_folder() or Path(tempfile.mkdtemp(prefix="headrace-"))
        _remove_dead(root)
        name = f"spark-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        beginning = root / f".{name}"
        locked = beginning.open("w")
        fcntl.flock(locked, fcntl.LOCK_EX)
        beginning.rename(root / f"{name}{_LOCK}")  # visible to others only once it is locked
        folder = root / name
        folder.mkdir(mode=0o700)
        return cls(folder, locked)

    @classmethod
    def held(cls, folder: Path, lock: int) -> Self:
        """Return a folder that another process created and handed over with its lock."""
        return cls(folder, os.fdopen(lock, "w"))

    @property
    def lock(self) -> int:
        """The file descriptor that holds the lock."""
        return self._locked.fileno()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_name(f"{self.folder.name}{_LOCK}").unlink(missing_ok=True)
        self._locked.close()


def _remove_dead(root: Path) -> None:
    for lock in root.glob(f"*{_LOCK}"):
        with suppress(OSError), lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink()
