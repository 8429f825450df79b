"""Metrics: what the runtime measures, and who wants to be told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from headrace.sdk.config import Configured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.sdk.config import Config

__all__ = ["Metric", "MetricKind", "MetricSample", "MetricsReporter"]


class MetricKind(StrEnum):
    """How the values of a metric behave, as Prometheus and OpenMetrics name it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Something that is measured.

    Args:
        name: Its name, with its unit at the end; that of a counter lacks ``_total``.
        kind: How its values behave. A counter never goes down while the process lives.
        help: What it is, in one sentence.
        labels: The labels of its samples.
        kafka: Kafka Connect's metrics that mean the same, each with the PromQL that gives its
            value where that is not the metric itself; for the documentation.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    kafka: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a metric.

    Args:
        metric: The metric.
        name: The sample's name: the metric's, with ``_total`` for a counter, and with
            ``_bucket``, ``_count`` or ``_sum`` for a histogram or a summary.
        labels: Tell its connector, its task and so on; ``le`` is a bucket's upper bound.
        value: The value; a bucket counts what is not above its bound.
    """

    metric: Metric
    name: str
    labels: Mapping[str, str]
    value: float


class MetricsReporter(Configured, ABC):
    """Carries metrics to some other system, as Kafka's ``metric.reporters`` do.

    The runtime makes one for each that its settings name, calls ``configure`` once, then
    ``report`` again and again, and ``close`` once. All calls come from one thread that
    belongs to this reporter alone, so it may block: it misses reports meanwhile, and nothing
    else suffers. What it raises is logged and counted, and it is called again next time.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "0"

    @abstractmethod
    def configure(self, config: Config) -> None:
        """Get ready. Raises ConfigError if it cannot be as it is told."""

    @abstractmethod
    def report(self, at: datetime, samples: Sequence[MetricSample]) -> None:
        """Take all values as they are now.

        Args:
            at: When they were taken; aware.
            samples: Those of a metric follow each other.
        """

    def close(self) -> None:
        """Let go of everything. Called once, also when ``configure`` failed."""
