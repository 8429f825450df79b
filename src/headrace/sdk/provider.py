"""Config providers and metrics reporters, which serve a whole worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.sdk.config import Config, Configured
from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """Where a provider is used.

    Args:
        folders: The folders that are meant for secrets.
        serving: Whether the author of configurations may be somebody else than who runs this
            process. A provider should then give nothing that was not meant for
            configurations, unless its own keys say so.
        shared: Whether it is sure to be somebody else, as clients have tokens.
    """

    folders: Sequence[Path] = ()
    serving: bool = False
    shared: bool = False


class ConfigProvider(Configured, ABC):
    """Knows the values of references ``${provider:path:key}`` and ``${provider:key}``.

    It is made when a reference to it is first met, and used by any thread. Kafka's interface
    of the name is its model.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    def __init__(self, config: Config, context: ProviderContext) -> None:
        self.settings = self.settings_class().from_config(config)
        self.context = context

    @abstractmethod
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return the values of keys at a path, those that are there.

        Called each time a configuration is checked or its tasks are planned, so that a value
        that has changed counts from the next start of the tasks on. ``path`` is what stands
        between the provider and the key, empty if nothing does. Raises ConfigError: the path is
        not there, or may not be read. It must hold no value. Raises RetriableError: a system
        that holds the values does not answer now.
        """


def allowed_path(text: str, allowed: Collection[str], context: ProviderContext) -> Path:
    """Return the path that a reference names, links followed, if it may be read.

    ``allowed`` are the paths at or below which files may be read; if none, those that are meant
    for secrets where others write the configurations, and all where nobody else does. Raises
    ConfigError: it may not, or is not absolute.
    """
    if not text or "\0" in text or not Path(text).is_absolute():
        problem = f"Expected an absolute path, got {text!r}."
        raise ConfigError(problem, fix="Write the whole path.")
    if not allowed and not context.serving:
        return Path(text).resolve()
    folders = [Path(each) for each in allowed] or list(context.folders)
    path = Path(text).resolve()
    # Both are resolved: a link out of an allowed folder leads out of it.
    if not any(path.is_relative_to(folder.resolve()) for folder in folders):
        shown = ", ".join(str(folder) for folder in folders) or "none"
        problem = f"{text} is not among the paths that references may read."
        fix = f"Put it below one of: {shown}. The provider's allowed.paths names others."
        raise ConfigError(problem, fix=fix)
    return path


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
        name: The sample's name: the metric's, with ``_total`` for a counter, and with
            ``_bucket``, ``_count`` or ``_sum`` for a histogram or a summary.
        labels: Its connector, its task and so on; ``le`` is a bucket's upper bound.
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
        """Get ready. Raises ConfigError if it cannot with this configuration."""

    @abstractmethod
    def report(self, at: datetime, samples: Sequence[MetricSample]) -> None:
        """Take all values as they are now.

        Args:
            at: When they were taken; aware.
            samples: Those of a metric follow each other.
        """

    def close(self) -> None:
        """Let go of everything. Called once, also when ``configure`` failed."""
