"""Debezium's own connector for PostgreSQL, in a JVM of its own.

    with debezium_events(connection_properties(url, folder), settings=settings) as events:
        events.wait_for_streaming(url)
        ...
        found = events.until(lambda event: event["topic"].endswith(".the_end"))

Debezium 3.6.1 is the newest release whose parts all have their jars. `jars.toml` pins them;
they are fetched into the cache of jars at first use, or before it by ``python -m
tests.debezium.engine``. Nothing but PostgreSQL is connected to, and nothing is listened at.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import psutil
import psycopg

from headrace.settings import Settings, load_settings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = Path(__file__).parent
DRIVER = FOLDER / "Debezium.java"
LOCK = FOLDER / "jars.toml"
SECONDS = 60
PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium gives for a value that the log has not got, as an update left it alone."""
_OPTIONS = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

Event = dict[str, Any]
"""What an event is here: ``topic``, and ``key`` and ``value`` as Kafka's JsonConverter has
them, with their schemas unless asked otherwise; each may be None."""


class DebeziumError(Exception):
    """Debezium has stopped of itself, or has not come to what was waited for."""


def connection_properties(url: str, folder: Path, **others: str) -> dict[str, str]:
    """Return the settings with which events are comparable with those of Headrace.

    Args:
        url: Where the database is, as libpq has it.
        folder: Keeps the offsets: with the same one a second engine goes on behind the first.
        others: More settings, with ``_`` for ``.``, as in ``snapshot_mode="no_data"``.
    """
    place = urlsplit(url)
    return {
        "name": "debezium",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "0",
        "database.hostname": place.hostname or "127.0.0.1",
        "database.port": str(place.port or 5432),
        "database.user": unquote(place.username or "postgres"),
        "database.password": unquote(place.password or ""),
        "database.dbname": place.path.lstrip("/"),
        "topic.prefix": "headrace",
        "plugin.name": "pgoutput",
        "snapshot.mode": "initial",
        "decimal.handling.mode": "precise",
        "time.precision.mode": "adaptive_time_microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",
        "hstore.handling.mode": "json",
        "include.unknown.datatypes": "true",
        "unavailable.value.placeholder": PLACEHOLDER,
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
        "poll.interval.ms": "50",
        **{name.replace("_", "."): value for name, value in others.items()},
    }


class DebeziumProcess:
    """An engine; use it in a ``with``, or `stop` it.

    Args:
        properties: The engine's and the connector's.
        settings: Where Java and the cache of jars are.
        handed: ``events`` to get them, ``json`` or ``connect`` to have so many counted only.
        count: How many are counted.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        settings: Settings,
        handed: str = "events",
        count: int = 0,
    ) -> None:
        command = java_command(settings)
        # Its complaints go to a file, as a pipe that nobody reads would stop it.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin
        assert self._process.stdout
        job = {"properties": dict(properties), "handed": handed, "count": count}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, out: IO[str]) -> None:
        for line in out:
            self._lines.put(line)
        self._lines.put("")

    def line(self, by: float) -> dict[str, Any] | None:
        """Return the next line, or None at the end; by a time of `time.monotonic`."""
        try:
            line = self._lines.get(timeout=max(0.0, by - time.monotonic()))
        except queue.Empty:
            raise DebeziumError("Debezium says nothing more. " + self.complaints()) from None
        if not line:
            self._lines.put("")
            return None
        found: dict[str, Any] = json.loads(line)
        if found.get("error"):
            raise DebeziumError(found["error"])
        return found

    def check(self, by: float) -> None:
        """Raise DebeziumError if it does not run, or by a time of `time.monotonic`."""
        if self._process.poll() is not None or time.monotonic() > by:
            raise DebeziumError("Debezium does not stream. " + self.complaints())

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def complaints(self) -> str:
        """Return the end of what it has logged."""
        size = self._complaints.seek(0, os.SEEK_END)
        self._complaints.seek(max(0, size - 4000))
        return self._complaints.read()

    def stop(self) -> None:
        """Stop it in good order, or kill it. Its offsets are kept."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS / 2)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(SECONDS)
        assert self._process.stdout
        self._process.stdout.close()
        self._complaints.close()

    def kill(self) -> None:
        """End it where it is, as a crash does; `stop` it all the same."""
        self._process.kill()
        self._process.wait(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class DebeziumEvents:
    """The events of an engine that runs, each given once, in their order."""

    def __init__(self, process: DebeziumProcess) -> None:
        self.process = process

    def wait_for_streaming(self, url: str, seconds: float = SECONDS) -> None:
        """Wait until the snapshot is over and the log of the database is being read.

        Until then the snapshot and statements may lock each other out.
        """
        by = time.monotonic() + seconds
        statement = (
            "SELECT count(*) FROM pg_replication_slots JOIN pg_stat_replication"
            " ON pid = active_pid WHERE database = current_database() AND state = 'streaming'"
        )
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute(statement).fetchone() == (0,):
                self.process.check(by)
                time.sleep(0.05)

    def until(self, ends: Callable[[Event], bool], seconds: float = SECONDS) -> list[Event]:
        """Return the events up to one that ``ends`` is true of, without that one."""
        by = time.monotonic() + seconds
        found: list[Event] = []
        for event in self._events(by):
            if ends(event):
                return found
            found.append(event)
        raise DebeziumError("Debezium has stopped. " + self.process.complaints())

    def take(self, count: int, seconds: float = SECONDS) -> list[Event]:
        """Return so many events."""
        by = time.monotonic() + seconds
        found = list(islice(self._events(by), count))
        if len(found) < count:
            raise DebeziumError("Debezium has stopped. " + self.process.complaints())
        return found

    def __iter__(self) -> Iterator[Event]:
        """Give each event until the engine stops of itself, or none has come for a minute."""
        while True:
            event = next(self._events(time.monotonic() + SECONDS), None)
            if event is None:
                return
            yield event

    def _events(self, by: float) -> Iterator[Event]:
        while (line := self.process.line(by)) is not None:
            if "topic" in line:
                yield line


@contextmanager
def debezium_events(
    properties: Mapping[str, str], *, settings: Settings | None = None, schemas: bool = True
) -> Iterator[DebeziumEvents]:
    """Run Debezium for as long as this lasts.

    Args:
        properties: As `connection_properties` gives them.
        settings: Where Java and the cache of jars are; those of this machine if None.
        schemas: Whether keys and values come with their schemas, as `normalised` needs them.
    """
    enabled = {
        "converter.schemas.enable": str(schemas).lower(),
        # Else a null reads as the default of its column.
        "converter.replace.null.with.default": "false",
    }
    with DebeziumProcess(
        {**enabled, **properties}, settings=settings or load_settings()
    ) as process:
        yield DebeziumEvents(process)


def java_command(settings: Settings) -> list[str]:
    """Return the command that runs the driver, which is compiled once for each machine."""
    java = find_java(settings.java_home)
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    jars = ":".join(str(jar) for jar in cache.resolve(locked_jars(lock=LOCK)))
    source = sha256(DRIVER.read_bytes() + LOCK.read_bytes() + java.build.encode()).hexdigest()
    classes = settings.cache / f"debezium-driver-{source[:16]}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=settings.cache) as folder:
            making = Path(folder) / "classes"
            # As `java File.java` compiles it, at each start.
            compiler = [str(java.command), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            subprocess.run([*compiler, "-cp", jars, "-d", making, DRIVER], check=True)
            try:
                making.rename(classes)
            except OSError:  # another process was quicker
                assert classes.exists()
    return [str(java.command), *_OPTIONS, "-cp", f"{jars}:{classes}", "Debezium"]


if __name__ == "__main__":
    java_command(load_settings())
