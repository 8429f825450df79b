"""The reporter that writes metrics to a file, as lines of JSON."""

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
    from headrace.sdk.provider import MetricSample

_OWNERS = ("connector", "task")


class JsonLinesSettings(Settings):
    """The settings of ``JsonLines``."""

    path: str = setting(
        "The file; its folder is made if it is not there.",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )
    include: tuple[str, ...] = setting(
        "How the names of the metrics begin that are written; all if it is empty.", default=()
    )
    buckets: bool = setting(
        "Whether the buckets of histograms are written, beside sum and count.", default=False
    )
    max_bytes: int = setting(
        "The size at which the file is put aside and a new one begun; 0 for never.",
        default=10_000_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    kept_files: int = setting(
        "How many files that were put aside are kept, as `<path>.1` and so on.",
        default=5,
        validator=Range(at_least=1),
    )


class JsonLines(MetricsReporter):
    """Writes metrics to a file: a line of JSON for each connector, each task and the worker.

    A line has `at`, the `connector` and the `task` that it is about, and `metrics`: each value
    by its name, with the labels that are left as Prometheus writes them.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "1.0.0"

    settings: JsonLinesSettings

    def __init__(self) -> None:
        """Begin without a file."""
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
            raise ConfigError(problem, field="path", fix="Name another file.") from error

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
    """A file that rotates, and says what goes wrong with it."""

    def write(self, line: str) -> None:
        """Write a line, which is in the file on return. Raises OSError."""
        self.handle(logging.makeLogRecord({"msg": line}))

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704 - the library calls it where it handles the error


def _name(sample: MetricSample) -> str:
    """Return a sample's name with the labels that do not say whose it is."""
    left = {key: value for key, value in sample.labels.items() if key not in _OWNERS}
    text = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(left.items()))
    return f"{sample.name}{{{text}}}" if text else sample.name
