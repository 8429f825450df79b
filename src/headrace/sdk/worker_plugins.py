"""The plugins of a worker: config providers, metrics reporters and alert channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk.config import Config, Configured
from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """The environment of a provider.

    Args:
        folders: The folders for secrets.
        serving: Whether the author of configurations may be someone other than the user who
            runs this process. A provider should then return only values meant for
            configurations, unless its own settings allow others.
        shared: Whether the author certainly is someone else, because clients use tokens.
    """

    folders: Sequence[Path] = ()
    serving: bool = False
    shared: bool = False


class ConfigProvider(Configured, ABC):
    """Resolves references such as ``${provider:path:key}`` and ``${provider:key}``.

    It is created at the first reference to it, and must be thread-safe. It follows Kafka's
    interface of the same name.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    def __init__(self, config: Config, context: ProviderContext) -> None:
        self.settings = self.settings_class().from_config(config)
        self.context = context

    @abstractmethod
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return the values of those keys that exist at a path.

        Called each time a configuration is validated or its tasks are planned, so a changed
        value takes effect at the next start of the tasks. ``path`` is the text between the
        provider and the key; it may be empty. Raises ConfigError: the path does not exist or
        may not be read. The error must not contain a value. Raises RetriableError: the system
        that stores the values is temporarily unavailable.
        """


def allowed_path(text: str, allowed: Collection[str], context: ProviderContext) -> Path:
    """Return the path that a reference names, with links resolved, if it may be read.

    ``allowed`` lists the files and folders that may be read. If it is empty, these are the
    folders for secrets if others may write configurations (``context.serving``), else all
    paths. Raises ConfigError: the path may not be read or is not absolute.
    """
    if not text or "\0" in text or not Path(text).is_absolute():
        problem = f"Expected an absolute path, got {text!r}."
        raise ConfigError(problem, fix="Use an absolute path.")
    if not allowed and not context.serving:
        return Path(text).resolve()
    folders = [Path(each) for each in allowed] or list(context.folders)
    path = Path(text).resolve()
    # Both are resolved, so a link cannot lead out of an allowed folder.
    if not any(path.is_relative_to(folder.resolve()) for folder in folders):
        shown = ", ".join(str(folder) for folder in folders) or "none"
        problem = f"{text} is not among the paths that references may read."
        fix = f"Move it below one of: {shown}. Or add it to the provider's allowed.paths."
        raise ConfigError(problem, fix=fix)
    return path


class MetricKind(StrEnum):
    """The type of a metric, by the names of Prometheus and OpenMetrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric.

    Args:
        name: The name, with its unit at the end; for a counter without ``_total``.
        kind: The type. A counter never decreases during the life of the process.
        kafka: The equivalent Kafka Connect metrics, each with the PromQL that computes its
            value, if that is not the metric itself; for the documentation.
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
        name: The sample's name: the metric's name, with ``_total`` for a counter, and with
            ``_bucket``, ``_count`` or ``_sum`` for a histogram or a summary.
        labels: The connector, the task and so on; ``le`` is a bucket's upper bound.
        value: The value; a bucket counts the observations less than or equal to its bound.
    """

    metric: Metric
    name: str
    labels: Mapping[str, str]
    value: float


class MetricsReporter(Configured, ABC):
    """Sends metrics to another system, like Kafka's ``metric.reporters``.

    The runtime creates one for each reporter in its settings, calls ``configure`` once, then
    ``report`` repeatedly, and ``close`` once. All calls come from a thread of this reporter
    alone, so it may block: it misses reports in that time, without other effects. Exceptions
    are logged and counted, and the reporter is called again next time.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "0"

    @abstractmethod
    def configure(self, config: Config) -> None:
        """Initialize. Raises ConfigError if the configuration is not usable."""

    @abstractmethod
    def report(self, at: datetime, samples: Sequence[MetricSample]) -> None:
        """Send the current values of all metrics.

        Args:
            at: When the values were collected; an aware datetime.
            samples: The samples, grouped by metric.
        """

    def close(self) -> None:
        """Release all resources. Called once, also if ``configure`` failed."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert about an offline job.

    It must contain no secrets and no record data.

    Args:
        id: Identifies the alert; the same if it is sent again.
        kind: ``failed``, ``late``, ``empty``, ``balance``, ``duration`` or ``rows``; ``test``
            for a test alert that a user requested.
        at: When the problem was detected; an aware datetime.
        job: The job; empty for a test.
        run: The run; the first if several are late. None if the alert is about the job itself.
        subject: What happened, in one line.
        text: The subject and details of the run, as lines of plain text.
        details: The content of the text as JSON values by name.
    """

    id: str
    kind: str
    at: datetime
    job: str
    subject: str
    text: str
    run: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the alert as JSON values, ``at`` in ISO 8601."""
        return {
            "id": self.id,
            "kind": self.kind,
            "at": self.at.isoformat(),
            "job": self.job,
            "run": self.run,
            "subject": self.subject,
            "text": self.text,
            "details": dict(self.details),
        }


class AlertChannel(Configured, ABC):
    """Sends alerts to users: to a log, a web service, by e-mail.

    The runtime creates one for each channel in its settings, and calls ``configure`` once, then
    ``send`` for each alert, and ``close`` once. After an error the channel is closed, and a new
    one is created for the next attempt, with secrets resolved again. All calls come from a
    thread of this channel alone, so it may block; only its own alerts wait in that time.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    @abstractmethod
    def configure(self, config: Config) -> None:
        """Initialize. Raises ConfigError if the configuration is not usable."""

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Send an alert; it counts as sent when the method returns.

        After any exception the alert is retried later, for up to a day, and not before the wait
        of a RetriableError. The error is logged and shown, so it must contain no secrets. An
        alert is sent twice, with the same id, if a server dies after sending it and before
        recording that, or if a call takes longer than five minutes.
        """

    def close(self) -> None:
        """Release all resources. Called once, also if ``configure`` failed."""
