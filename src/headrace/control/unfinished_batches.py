"""Gives up unfinished batches that cannot run any more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.control.offsets import require_stopped, shown_offsets
from headrace.model import Batch, BatchState, Connector, Stamp, TaskId
from headrace.sdk import Position, StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.control.connectors import Connectors


class Holding(StrEnum):
    """Whether a target holds a batch."""

    YES = "yes"
    PART = "part"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TargetView:
    """A target of a task.

    Args:
        name: The class of the sink.
        why: Why ``holds`` is UNKNOWN, or which part the target holds.
    """

    name: str
    holds: Holding
    why: str = ""


class BatchTargets(Protocol):
    """Asks the targets of tasks whether they hold a batch. Thread-safe."""

    def ask(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        """Return whether each target of a batch's task holds the batch; never raises.

        ``connector`` has its passwords. ``topics`` are the topics and streams that the batch's
        records may have.
        """


@dataclass(frozen=True)
class GivenUp:
    """A batch that was given up, or would be.

    Args:
        skipped: Whether the batch's records are skipped instead of read again.
        done: False for a dry run.
        meaning: The effect on the batch's records, in words.
    """

    batch: Batch
    skipped: bool
    targets: Sequence[TargetView]
    done: bool
    meaning: str


@dataclass(frozen=True)
class UnfinishedBatches:
    """The unfinished batches of an installation's connectors. Thread-safe."""

    connectors: Connectors
    targets: BatchTargets

    def give_up(
        self,
        task: TaskId,
        batch_id: int,
        by: str,
        *,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> GivenUp:
        """Give up the unfinished batch of a stopped connector, e.g. if it cannot be read again.

        The task then plans a new batch from the start of this one or, with ``skip``, from its
        end. The batch id is not reused. ``dry_run`` changes nothing.

        Raises:
            StateError: The connector is not stopped, the id is not that of the unfinished
                batch or, unless forced, a target holds the batch or cannot be asked.
        """
        found = self.connectors.get(task.connector)
        require_stopped(found)
        batch = self._unfinished(task, batch_id)
        name = found.name
        stored = self.connectors.store.connector(name)  # with its passwords
        topics = {
            *self.connectors.store.topics(name),
            *self.connectors.task_store.schemas(name),
        }
        targets = self.targets.ask(stored or found, batch, sorted(topics))
        start, end = (_places(found, each) for each in (batch.start, batch.end))
        if not dry_run:
            if not force:
                require_not_held(batch, targets)
            stamp = Stamp(self.connectors.clock(), by)
            self.connectors.store.give_up(task, batch_id, stamp, skip=skip)
        meaning = meaning_of(start, end, skip=skip)
        return GivenUp(batch, skip, targets, not dry_run, meaning)

    def _unfinished(self, task: TaskId, batch_id: int) -> Batch:
        newest = self.connectors.task_store.batches(task, 1)
        if not newest or newest[0].id != batch_id or newest[0].state is BatchState.FINISHED:
            problem = f"Batch {batch_id} is not an unfinished batch of task {task}."
            fix = f"Run: headrace connector batches {task.connector} --task {task.number}."
            raise StateError(problem, field="batch", fix=fix)
        return newest[0]


def require_not_held(batch: Batch, targets: Sequence[TargetView]) -> None:
    """Raise StateError if a target holds a batch or part of it, or cannot be asked."""
    held = [each.name for each in targets if each.holds is Holding.YES]
    parts = [f"{each.name}: {each.why}" for each in targets if each.holds is Holding.PART]
    start = "Start the connector" if batch.task.run is None else "Retry the run"
    fix = (
        f"{start} to finish the batch. If that is not possible, force it: the records are "
        "then duplicated in the target, unless you skip them."
    )
    if held:
        problem = f"{' and '.join(held)} holds batch {batch.id} of task {batch.task}."
        rest = [each.name for each in targets if each.holds is not Holding.YES]
        if rest:
            problem += f" {' and '.join(rest)} may not hold it."
        raise StateError(problem, field="batch", fix=fix)
    if parts:
        problem = f"Batch {batch.id} of task {batch.task} is partly written. {' '.join(parts)}"
        fix += " The records that are not written yet are then lost."
        raise StateError(problem, field="batch", fix=fix)
    unknown = [f"{each.name}: {each.why}" for each in targets if each.holds is Holding.UNKNOWN]
    if unknown:
        problem = f"Cannot determine whether batch {batch.id} was written. {' '.join(unknown)}"
        fix = "Make the target reachable, or force it: the records may then be duplicated."
        raise StateError(problem, field="batch", fix=fix)


def meaning_of(start: str, end: str, *, skip: bool) -> str:
    """Return the effect on the records between two offsets, in words."""
    between = f"The records between {start} and {end}"
    if skip:
        return f"{between} are skipped: a target that does not have them yet never gets them."
    return (
        f"{between} are read again in a new batch, if they still exist: a target that has "
        "some of them gets duplicates."
    )


def _places(found: Connector, position: Position) -> str:
    shown = shown_offsets(found, position)
    return places_text((each.partition, each.offset or {}) for each in shown)


def places_text(places: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return partitions and their offsets as text."""
    texts = [
        ", ".join(f"{key} {value}" for key, value in {**partition, **offset}.items())
        for partition, offset in places
    ]
    return "; ".join(texts) or "the beginning"
