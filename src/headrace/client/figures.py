"""What a server measures of its tasks, read from what it shows to Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TaskFigures", "task_figures"]

_FIELDS = {
    "headrace_task_records_read_total": "read",
    "headrace_task_records_written_total": "written",
    "headrace_task_records_rejected_total": "rejected",
    "headrace_task_bytes_total": "size_bytes",
    "headrace_task_batch_seconds_count": "batches",
    "headrace_task_batch_seconds_sum": "batch_seconds",
    "headrace_task_batch_records": "batch_records",
    "headrace_task_lag_records": "lag_records",
    "headrace_task_lag_bytes": "lag_bytes",
    "headrace_task_retries_total": "retries",
    "headrace_task_failures_total": "failures",
}
_STATE = "headrace_task_state"


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What a task has done since its server began, and how it is.

    Args:
        connector: The name of its connector.
        number: Its number, from 0.
        state: RUNNING, PAUSED, FAILED, ...
        read: Records that it has read.
        written: Records that are durable in its targets.
        rejected: Records that failed and were left out.
        size_bytes: Bytes of what it read or wrote.
        batches: How many batches it has finished.
        batch_seconds: How long they took, in all.
        batch_records: How many records the newest read.
        lag_records: How many waited when that began; None where nobody knows.
        lag_bytes: The same in bytes.
        retries: Steps that failed for now.
        failures: How often it became FAILED.
    """

    connector: str
    number: int
    state: str = ""
    read: float = 0
    written: float = 0
    rejected: float = 0
    size_bytes: float = 0
    batches: float = 0
    batch_seconds: float = 0
    batch_records: float = 0
    lag_records: float | None = None
    lag_bytes: float | None = None
    retries: float = 0
    failures: float = 0

    @property
    def name(self) -> str:
        """Return the task's name."""
        return f"{self.connector}-{self.number}"


def task_figures(text: str) -> list[TaskFigures]:
    """Return the figures of each task, by name, from an exposition for Prometheus."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - as httpx2 is

    found: dict[tuple[str, int], TaskFigures] = {}
    families: Iterable[object] = text_string_to_metric_families(text)
    for family in families:
        for sample in family.samples:  # type: ignore[attr-defined]  # its module has no types
            _take(found, sample.name, sample.labels, sample.value)
    return [found[key] for key in sorted(found)]


def _take(
    found: dict[tuple[str, int], TaskFigures],
    name: str,
    labels: Mapping[str, str],
    value: float,
) -> None:
    if "task" not in labels or "connector" not in labels:
        return
    key = labels["connector"], int(labels["task"])
    before = found.get(key) or TaskFigures(*key)
    if name == _STATE and value == 1:
        found[key] = replace(before, state=labels["state"])
    elif name in _FIELDS:
        found[key] = replace(before, **{_FIELDS[name]: value})  # type: ignore[arg-type]  # a field's name
