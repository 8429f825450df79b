"""Checks which windows of a job may run: without overlaps, in order, or again."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from headrace.sdk import Boundaries, BoundaryKind, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.model import Definition, Job, JobSpec, PluginSpec, TimeWindow
    from headrace.plugins import Registry
    from headrace.sdk import SinkConnector
    from headrace.sdk.config import Config
    from headrace.store import JobStore

_COMPARED = 100_000
"""With how many runs a manually triggered window is compared."""
_EARLIEST, _LATEST = (
    time.replace(tzinfo=UTC)
    for time in (datetime.min, datetime.max)  # noqa: DTZ901 - with a zone
)


@dataclass(frozen=True)
class JobWindows:
    """Which windows the source and sinks of a job allow, given its earlier runs."""

    store: JobStore
    registry: Registry

    def check_apart(self, job: Job, spec: JobSpec, window: Boundaries) -> None:
        """Raise ConfigError if a window overlaps another and a sink does not allow that."""
        sink = self.overlapping(spec)
        if sink is None or window.kind is BoundaryKind.OFFSET:
            return  # only a source knows the order of offsets
        if window.kind is BoundaryKind.TIME:
            found = self._shared_time(job, spec, window)
        else:
            runs = self.store.runs(job.name, limit=_COMPARED)
            others = (run.boundaries for run in runs if share_rows(run.boundaries, window))
            found = next((_titled(each) for each in others), None)
        if found is not None:
            raise ConfigError(
                problem=f"{found} this window: {sink.plugin} could then have the rows of the "
                "overlap twice, or not at all.",
                fix="Choose bounds that overlap no run, or write with upserts.",
                field="lower",
            )

    def _shared_time(self, job: Job, spec: JobSpec, window: Boundaries) -> str | None:
        """Return what overlaps a time window, now or later, as text; None if nothing does."""
        lower, upper = window.times
        lower = lower or _EARLIEST
        assert upper is not None
        if job.cursor is not None and spec.schedule is not None and upper > job.cursor:
            # Beyond the schedule's cursor only the schedule's own windows are allowed.
            windows = spec.schedule.windows_in(lower, upper)
            ahead = [(max(each.lower, job.cursor), each.upper) for each in windows]
            if ahead != [(lower, upper)]:
                coming = windows[-1]
                return f"The schedule's window {coming.lower} to {coming.upper} will overlap"
        others = self.store.windows(job.name, lower, upper)
        return _titled(others[0]) if others else None

    def left_of(self, job: str, windows: Sequence[TimeWindow]) -> list[TimeWindow]:
        """Return the windows that overlap no run, in the order given (ascending)."""
        spans = self.store.windows(job, windows[0].lower, windows[-1].upper)
        times = (span.times for span in spans)
        left = deque(sorted((lower or _EARLIEST, upper or _LATEST) for lower, upper in times))
        reached, found = _EARLIEST, []
        for window in windows:
            while left and left[0][0] < window.upper:
                reached = max(reached, left.popleft()[1])
            if reached <= window.lower:
                found.append(window)
        return found

    def check_order(self, spec: JobSpec, window: Boundaries) -> None:
        """Raise ConfigError if order matters and a later window already has a run."""
        upper = window.times[1] if window.kind is BoundaryKind.TIME else None
        if upper is None or not is_ordered(spec.definition, self.registry):
            return
        end = self.store.windows_end(spec.definition.name)
        if end is not None and end > upper:
            raise ConfigError(
                problem=f"The source returns changes, and windows up to {end} already have "
                f"runs: old values of rows, from before {upper}, would overwrite newer ones.",
                fix="Read each window once and in order. To find and repair rows that are "
                "missing in a target: headrace verify --repair.",
                field="upper",
            )

    def appending(self, spec: JobSpec) -> PluginSpec | None:
        """Return a sink that duplicates rows if a window is written twice; None if none."""
        return self._sink_without(spec, lambda plugin, config: plugin.repeatable(config))

    def overlapping(self, spec: JobSpec) -> PluginSpec | None:
        """Return a sink whose windows must not overlap; None if all allow overlaps."""
        return self._sink_without(spec, lambda plugin, config: plugin.takes_overlaps(config))

    def _sink_without(
        self, spec: JobSpec, may: Callable[[type[SinkConnector], Config], bool]
    ) -> PluginSpec | None:
        for sink in spec.definition.sinks:
            plugin = self.registry.sink(sink.plugin)
            values, _ = self.registry.references.values(sink.config)
            if not may(plugin, plugin.config_def().parse(values)):
                return sink
        return None


def _titled(window: Boundaries) -> str:
    return f"The run of {window.lower} to {window.upper} overlaps"


def is_ordered(definition: Definition, registry: Registry) -> bool:
    """Return whether the windows of a copy must be read in order."""
    source = definition.source
    assert source is not None
    plugin = registry.source(source.plugin)
    values, _ = registry.references.values(source.config)
    return plugin.is_ordered(plugin.config_def().parse(values))


def share_rows(one: Boundaries, other: Boundaries) -> bool:
    """Return whether two windows of the same kind may share rows.

    Bounds are compared as numbers if all are numbers, else as strings.
    """
    texts = [one.lower, one.upper, other.lower, other.upper]
    ranks: list[Any] = list(texts)
    with suppress(InvalidOperation):
        ranks = [None if text is None else Decimal(text) for text in texts]
    begin, end, other_begin, other_end = ranks
    starts = other_end is None or begin is None or begin < other_end
    return starts and (end is None or other_begin is None or other_begin < end)


def require_plain(boundaries: Boundaries, registry: Registry) -> None:
    """Raise ConfigError if a bound contains a reference, which would be resolved.

    Guarantee 6: users who may set bounds may not write configurations, and so must not be able
    to read secrets.
    """
    for name, bound in (("lower", boundaries.lower), ("upper", boundaries.upper)):
        if bound is not None and registry.references.has_any(bound):
            raise ConfigError(
                problem=f"A bound must not contain a reference, got {bound}.",
                fix="Write the value itself.",
                field=name,
            )
