"""What the JVM of a session uses, and what Spark does in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.model import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AREAS = {"heap": "heap", "nonheap": "non-heap"}


@dataclass(frozen=True, slots=True)
class JvmFigures:
    """The JVM at one moment.

    Args:
        memory: Bytes, by area (``heap``, ``nonheap``) and by ``used``, ``committed``, ``max``;
            what has no limit has no ``max``.
        collections: How many garbage collections there were, by collector.
        collecting: How many seconds they took, by collector.
        jobs: How many Spark jobs run.
    """

    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    collections: Mapping[str, int] = field(default_factory=dict)
    collecting: Mapping[str, float] = field(default_factory=dict)
    jobs: int = 0


@dataclass
class JvmWatch:
    """Looks at a session's JVM; a look takes a few milliseconds, or waits with the JVM.

    One call gets all figures as JSON: Spark brings the library that gathers them, while the
    JVM's own beans cannot be called from here, as their classes are not exported.
    """

    session: Callable[[], SparkSession]
    _registered: tuple[SparkSession, tuple[Any, Any]] | None = None

    @property
    def pid(self) -> int | None:
        """The JVM's process, where this process started it and it runs."""
        try:
            gateway = _gateway(self.session())
        except SparkUnavailableError:
            return None
        process = getattr(gateway, "proc", None)
        return None if process is None else int(process.pid)

    def look(self) -> JvmFigures:
        """Return how it is now. Raises what py4j raises when the JVM is gone."""
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


def _gateway(session: SparkSession) -> Any:
    return session.sparkContext._gateway  # noqa: SLF001 - PySpark has no other way to it


def _gauges(session: SparkSession) -> tuple[Any, Any]:
    jvm = _gateway(session).jvm
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
    """Return a figure of each garbage collector, by the collector's name."""
    return {
        name.removeprefix("gc.").removesuffix(f".{what}"): value
        for name, value in values.items()
        if name.startswith("gc.") and name.endswith(f".{what}")
    }
