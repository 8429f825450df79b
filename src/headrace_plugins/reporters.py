"""The reporter that writes metrics to a file as JSON lines."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from headrace.sdk import ConfigError, MetricsReporter
from headrace.sdk.config import ConfigType, Importance, NonEmptyString, Range, Settings, setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from headrace.sdk.config import Config
    from headrace.sdk.worker_plugins import MetricSample

_OWNERS = ("connector", "task")


class JsonLinesSettings(Settings):
    """The settings of ``JsonLines``."""

    path: str = setting(
        "The path of the file. Its folder is created if it does not exist.",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )
    include: tuple[str, ...] = setting(
        "The prefixes of the names of the metrics to write; all metrics if empty.", default=()
    )
    buckets: bool = setting(
        "Whether to write the buckets of histograms, besides sum and count.", default=False
    )
    max_bytes: int = setting(
        "The size, in bytes, at which the file is rotated; 0 for never.",
        default=10_000_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    kept_files: int = setting(
        "How many rotated files are kept, as `<path>.1` and so on.",
        default=5,
        validator=Range(at_least=1),
    )


class JsonLines(MetricsReporter):
    """Writes metrics to a file: a JSON line for each connector, each task and the worker.

    A line has `at`, the `connector` and the `task` of the metrics, and `metrics`: the values
    by name, with the other labels in Prometheus notation.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "1.0.0"

    settings: JsonLinesSettings

    def __init__(self) -> None:
        """Start without a file."""
        self._file: _File | None = None

    @override
    def configure(self, config: Config) -> None:
        self.settings = settings = JsonLinesSettings.from_config(config)
        path = Path(settings.path).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _File(
                path,
                maxBytes=settings.max_bytes,
                backupCount=settings.kept_files,
                encoding="utf-8",
            )
        except OSError as error:
            problem = f"Cannot write to {path}: {error.strerror}."
            raise ConfigError(problem, field="path", fix="Choose another file.") from error

    @override
    def report(self, at: datetime, samples: Sequence[MetricSample]) -> None:
        assert self._file is not None
        for owner, metrics in self._by_owner(samples).items():
            shown = {key: value for key, value in zip(_OWNERS, owner, strict=True) if value}
            line = {"at": at.isoformat(), **shown, "metrics": metrics}
            self._file.write(json.dumps(line))

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _by_owner(
        self, samples: Iterable[MetricSample]
    ) -> Mapping[tuple[str, ...], dict[str, Any]]:
        found: dict[tuple[str, ...], dict[str, Any]] = {}
        for sample in samples:
            reported = self.settings.buckets or "le" not in sample.labels
            if reported and sample.metric.name.startswith(self.settings.include or ""):
                owner = tuple(sample.labels.get(key, "") for key in _OWNERS)
                found.setdefault(owner, {})[_name(sample)] = sample.value
        return found


class _File(RotatingFileHandler):
    """A rotating file that raises its errors."""

    def write(self, line: str) -> None:
        """Write a line and flush it. Raises OSError."""
        self.handle(logging.makeLogRecord({"msg": line}))

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704 - the library calls it in its except block


def _name(sample: MetricSample) -> str:
    """Return a sample's name with its labels except connector and task."""
    left = {key: value for key, value in sample.labels.items() if key not in _OWNERS}
    text = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(left.items()))
    return f"{sample.name}{{{text}}}" if text else sample.name
