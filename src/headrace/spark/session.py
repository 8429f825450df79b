"""The one Spark session of a process."""

import atexit
import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.sdk.errors import SetupError
from headrace.sdk.sqltext import CALLS_JAVA, OPENS_FILES
from headrace.spark.class_archive import archive_file
from headrace.spark.conf import SparkSettings, is_local, spark_conf
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import (
    STOP_TIMEOUT,
    Scratch,
    close_gateway,
    find_java,
    open_gateway,
    own_folder,
    spark_environment,
)
from headrace.spark.jvm_reuse import IS_POSSIBLE, Place, forget, is_quiet


@dataclass(frozen=True, kw_only=True)
class _Open:
    spark: SparkSession
    gateway: JavaGateway
    conf: Mapping[str, str]
    scratch: Scratch
    place: Place | None

    @property
    def is_alive(self) -> bool:
        return self.gateway.proc.poll() is None


_LONGEST_FOLDER = 60
"""A socket's path has at most 103 bytes on macOS; its name in the folder takes 42."""

# PySpark stores one context per process in class variables; this tells whether it is ours.
_lock = threading.RLock()
_open: _Open | None = None
_ECHOES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers through which PySpark prints each error that it raises, as JSON with a Java trace."""


def open_session(
    settings: SparkSettings,
    *,
    app_name: str = "headrace",
    short_lived: bool = False,
    copies: bool = False,
    idle: timedelta | None = None,
) -> SparkSession:
    """Return the process's Spark session; start it if there is none.

    Only the wiring of a process calls it; other code receives the session. The start takes
    seconds, and fetches jars that setup did not fetch. The session ends with the process, or
    by `close_session`.

    Args:
        settings: Spark's master and settings.
        app_name: The name of the Spark application.
        short_lived: For a command that ends by itself: faster start, lower peak performance.
        copies: Whether it copies data, which may be so much that performance matters more.
        idle: How long the JVM of a short-lived command waits for the next command, which then
            reuses it; such a command also reuses a waiting JVM.

    Raises:
        SetupError: Java or a jar is missing, Java did not start, or a session is open with
            other settings.
    """
    global _open  # noqa: PLW0603 (as PySpark's own context is)
    with _lock:
        java = find_java(settings.java_home)
        cache = JarCache(
            folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf
        )
        files = cache.resolve(locked_jars())
        archive = archive_file(settings.cache, java, files)
        may_wait = IS_POSSIBLE and short_lived and is_local(settings.master)
        conf = spark_conf(
            settings,
            app_name=app_name,
            jars=files,
            archive=archive if archive.is_file() else None,
            short_lived=short_lived,
            # A JVM that waits for more commands may copy data for one of them.
            one_compiler=short_lived and not copies and not (may_wait and idle),
        )
        if _open is not None and _open.is_alive:
            _require_same(_open.conf, conf)
            return _open.spark
        close_session()  # the remains of a session whose JVM died
        if SparkContext._active_spark_context is not None:  # noqa: SLF001
            raise SetupError(
                problem="This process has a Spark session that Headrace did not start.",
                fix="Stop it first, or run Headrace in a separate process.",
            )
        folder = own_folder() if may_wait else None
        place = Place.of(folder, conf, idle) if folder and idle else None
        with spark_environment(java), _interrupts_unchanged():
            _open = _start(conf, settings.home / "logs" / "jvm.log", place)
        for name in _ECHOES:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        return _open.spark


def close_session(timeout: timedelta = STOP_TIMEOUT) -> None:
    """Stop the session, if one is open; return when its JVM has ended or waits for reuse."""
    global _open
    with _lock:
        if _open is None:
            return
        opened, _open = _open, None
        context = opened.spark.sparkContext
        _stop_accumulators(context)
        is_clean = opened.is_alive and _stopped(opened, timeout)
        # Otherwise PySpark would call the JVM; this way it only stops its Python side.
        setattr(context, "_jsc", None)  # noqa: B010 - PySpark's types have it as never None
        context.stop()
        is_left = False
        try:
            if opened.place is not None and is_clean:
                with suppress(OSError):
                    is_left = opened.place.leave(opened.gateway, opened.scratch)
        finally:
            if is_left:
                _forget_jvm()
            else:
                _stop_jvm(opened.gateway, timeout)
                opened.scratch.remove()


def _at_exit() -> None:
    """Let the JVM stop Spark itself, which takes 0.2 s; `spark.stop()` takes 0.8 s."""
    if _open is not None:
        close_gateway(_open.gateway)


atexit.register(_at_exit)


@contextmanager
def _interrupts_unchanged() -> Iterator[None]:
    """Restore the SIGINT handler, which Spark replaces when it starts in the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _stop_accumulators(context: SparkContext) -> None:
    """Stop PySpark's accumulator server in the background, so that the context does not wait.

    The server polls for its end every half second, or every second after a call of the JVM,
    and is no longer needed.
    """
    # PySpark shows no other way to it; None if user code has stopped Spark.
    server: Any = context._accumulatorServer  # noqa: SLF001
    if server is None:
        return
    setattr(context, "_accumulatorServer", None)  # noqa: B010 - its types have it as never None
    threading.Thread(
        target=server.shutdown, name="headrace-spark-accumulators", daemon=True
    ).start()


def _stopped(opened: _Open, timeout: timedelta) -> bool:
    """Stop Spark, with a timeout for a JVM that does not respond.

    Returns:
        Whether another command can reuse the JVM: it is idle, and has no JDBC drivers, of
        which it could have only one version, and which may keep databases open.
    """
    done: list[bool] = []

    def stop() -> None:
        may_wait = opened.place is not None and not _has_drivers(opened.spark.sparkContext)
        opened.spark.stop()
        if may_wait and is_quiet(opened.gateway):
            forget(opened.gateway)
            done.append(True)

    stopping = threading.Thread(target=stop, name="headrace-spark-stop", daemon=True)
    stopping.start()
    stopping.join(timeout.total_seconds())
    return bool(done)


def _has_drivers(context: SparkContext) -> bool:
    jars = context._jsc.sc().listJars()  # noqa: SLF001 - PySpark does not list them
    return not jars.isEmpty()


def _start(conf: Mapping[str, str], log: Path, place: Place | None) -> _Open:
    taken = None if place is None else place.take()
    if taken is not None:
        gateway, scratch = taken
        with suppress(Py4JError, OSError):  # then start our own JVM, which reports errors
            spark = _begun({**_folders(conf, scratch.folder), **conf}, gateway, scratch)
            return _Open(spark=spark, gateway=gateway, conf=conf, scratch=scratch, place=place)
    scratch = Scratch.make()
    all_conf = {**_folders(conf, scratch.folder), **conf}
    gateway = open_gateway(all_conf, log=log)
    spark = _begun(all_conf, gateway, scratch)
    return _Open(spark=spark, gateway=gateway, conf=conf, scratch=scratch, place=place)


def _begun(conf: Mapping[str, str], gateway: JavaGateway, scratch: Scratch) -> SparkSession:
    try:
        context_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
        context = SparkContext(conf=context_conf, gateway=gateway)
        # Otherwise PySpark's accumulator server prints a traceback when the JVM disconnects.
        setattr(context._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010, SLF001
        _forget_functions(context)
        return SparkSession.builder.getOrCreate()
    except BaseException:
        _stop_jvm(gateway)
        scratch.remove()
        raise


def _folders(conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    if not is_local(conf["spark.master"]):
        return {}  # remote executors have their own folders
    folders = {"spark.local.dir": str(scratch)}
    if len(bytes(scratch)) <= _LONGEST_FOLDER:
        # Spark and its Python workers exchange small messages. With TCP, which delays them, an
        # empty task takes 25 ms on 2 cores; with Unix sockets 9 ms.
        folders["spark.python.unix.domain.socket.enabled"] = "true"
        folders["spark.python.unix.domain.socket.dir"] = str(scratch)
    return folders


def _forget_functions(context: SparkContext) -> None:
    """Remove SQL functions that call Java or open files, before a session copies them.

    SQL in configurations and tables may do neither.
    """
    catalyst = context._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]  # noqa: SLF001 - PySpark shows no functions
    functions = catalyst.analysis.FunctionRegistry.builtin()
    for name in (*CALLS_JAVA, *OPENS_FILES):
        functions.dropFunction(catalyst.FunctionIdentifier(name))


def _stop_jvm(gateway: JavaGateway, timeout: timedelta = STOP_TIMEOUT) -> None:
    close_gateway(gateway, timeout)
    _forget_jvm()


def _forget_jvm() -> None:
    # PySpark caches these for the next session, which has another JVM here.
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _require_same(running: Mapping[str, str], requested: Mapping[str, str]) -> None:
    names = running.keys() | requested.keys()
    differing = sorted(name for name in names if running.get(name) != requested.get(name))
    if differing:
        raise SetupError(
            problem="A process has only one Spark session, and it is open with other settings: "
            f"{', '.join(differing)} would differ.",
            fix="Close it with close_session first, or use another process.",
        )
