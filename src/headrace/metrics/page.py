"""A page: the values of the metrics of one connector, one task or the worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.utils import floatToGoString

from headrace.sdk import MetricKind, MetricSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.sdk import Metric

_number: Callable[[float], str] = floatToGoString
"""Writes a value as Prometheus reads it."""
_NONE: Mapping[str, str] = {}
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(slots=True)
class _Cell:
    """One value, with the beginning of its line in the exposition."""

    metric: Metric
    name: str
    labels: Mapping[str, str]
    line: str
    value: float = 0.0


_Observed: TypeAlias = tuple[_Cell, _Cell, list[tuple[float, _Cell]]]
"""The count, the sum and the buckets of a histogram or a summary."""


@dataclass
class Page:
    """Values that appear and vanish together. Not safe for threads by itself.

    Its text is kept until a value changes: rendering is most of a scrape's work, and most
    tasks are idle.

    Args:
        common: The labels that all its values have.
    """

    common: Mapping[str, str] = field(default_factory=dict)
    _cells: dict[str, dict[tuple[str, ...], _Cell]] = field(default_factory=dict)
    _observed: dict[str, _Observed] = field(default_factory=dict)
    _texts: dict[str, str] | None = None

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Let a counter grow."""
        self._cell(metric, f"{metric.name}_total", labels).value += amount
        self._texts = None

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        cell = self._cell(metric, metric.name, labels)
        if cell.value != value:
            cell.value = value
            self._texts = None

    def raise_to(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a counter that is counted elsewhere; it does not go down."""
        cell = self._cell(metric, f"{metric.name}_total", labels)
        cell.value = max(cell.value, value)
        self._texts = None

    def choose(self, metric: Metric, chosen: str, all_of: Iterable[str]) -> None:
        """Set a gauge with the label ``state`` to 1 for one state and to 0 for the others."""
        for state in all_of:
            self.set(metric, float(state == chosen), state=state)

    def observe(self, metric: Metric, value: float, bounds: Iterable[float] = ()) -> None:
        """Add an observation to a histogram with these bounds, or to a summary."""
        found = self._observed.get(metric.name)
        if found is None:
            found = self._observed[metric.name] = self._observing(metric, bounds)
        count, total, buckets = found
        for bound, bucket in buckets:
            bucket.value += value <= bound
        count.value += 1
        total.value += value
        self._texts = None

    def _observing(self, metric: Metric, bounds: Iterable[float]) -> _Observed:
        shown = (*bounds, float("inf")) if metric.kind is MetricKind.HISTOGRAM else ()
        name = f"{metric.name}_bucket"
        buckets = [(b, self._cell(metric, name, {"le": _number(b)})) for b in shown]
        count = self._cell(metric, f"{metric.name}_count", _NONE)
        return count, self._cell(metric, f"{metric.name}_sum", _NONE), buckets

    def has(self, metric: Metric) -> bool:
        """Return whether there is any value of a metric."""
        return metric.name in self._cells

    def drop(self, metric: Metric) -> None:
        """Forget the values of a gauge or a counter."""
        if self._cells.pop(metric.name, None):
            self._texts = None

    def samples(self) -> Iterator[MetricSample]:
        """Yield all values."""
        for cells in self._cells.values():
            for cell in cells.values():
                yield MetricSample(cell.metric, cell.name, cell.labels, cell.value)

    def texts(self) -> Mapping[str, str]:
        """Return the lines of each metric, by its name, in Prometheus' text format.

        They are the same in OpenMetrics.
        """
        if self._texts is None:
            self._texts = {
                name: "".join(f"{cell.line}{_number(cell.value)}\n" for cell in cells.values())
                for name, cells in self._cells.items()
            }
        return self._texts

    def _cell(self, metric: Metric, name: str, labels: Mapping[str, str]) -> _Cell:
        """Return the cell of a value, a new one if there is none."""
        cells = self._cells.setdefault(metric.name, {})
        key = (name, *labels.values())
        cell = cells.get(key)
        if cell is None:
            all_labels = {**self.common, **labels}
            cell = cells[key] = _Cell(metric, name, all_labels, _line(name, all_labels))
            self._texts = None
        return cell


def _line(name: str, labels: Mapping[str, str]) -> str:
    """Return a line up to its value."""
    if not labels:
        return f"{name} "
    told = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in sorted(labels.items())]
    return f"{name}{{{','.join(told)}}} "
