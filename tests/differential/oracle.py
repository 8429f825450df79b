"""Kafka Connect's own classes, in a JVM of their own, driven by JSON lines."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.settings import Settings

FOLDER = Path(__file__).parent
DRIVER = FOLDER / "Oracle.java"
LOCK = FOLDER / "jars.toml"


class Oracle:
    """Asks Kafka's classes. Use it in a ``with``; it starts a JVM, which takes seconds.

    Args:
        settings: Where Java and the cache of jars are.
    """

    def __init__(self, settings: Settings) -> None:
        """Fetch the jars that are missing and start the JVM."""
        java = find_java(settings.java_home)
        folder = settings.cache / "jars"
        cache = JarCache(folder=folder, java=java, spark_conf=settings.spark_conf)
        jars = cache.resolve(locked_jars(lock=LOCK))
        classpath = ":".join(str(jar) for jar in jars)
        options = [
            "-XX:+UseSerialGC",
            "-Xmx512m",
            "-XX:-OmitStackTraceInFastThrow",
            "-cp",
            classpath,
        ]
        # Its complaints go to a file, as a pipe that nobody reads would stop it.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [java.home / "bin" / "java", *options, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
        )

    def chain(
        self,
        steps: Sequence[Mapping[str, Any]],
        records: Sequence[Mapping[str, Any]],
        *,
        sink: bool = False,
    ) -> dict[str, Any]:
        """Return ``{"results": [...]}``, or ``{"error"}`` where a step cannot be configured."""
        return self.ask({"op": "chain", "steps": steps, "records": records, "sink": sink})

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one job, see Oracle.java."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise RuntimeError(self._complaints.read()[-2000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the JVM, which ends with its input."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout and self._process.stdout.close()
        self._complaints.close()
