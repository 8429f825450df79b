"""A batch whose range cannot be read: planned anew at first, and with a way out later."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.model import Batch, Counts, TaskId, ToleranceExceededError
from headrace.sdk import (
    DataLostError,
    Lag,
    Position,
    ReadLimit,
    RetriableError,
    SourceError,
    StateError,
)
from headrace.sdk.errors import RangeChangedError
from headrace.store import Store, StoreUnavailableError
from headrace.worker import BatchLoop

TASK = TaskId("copy it", 0)
PARTITION = {"log": "a"}
WAY_OUT = "headrace connector offsets give-up 'copy it' --task 0 --batch 1"


@dataclass
class System:
    """A source of so many rows, and a flow that may fail."""

    rows: int = 5
    run: Callable[[Batch], Counts] = lambda _: Counts()
    store: Store = field(default_factory=Store)
    tried: list[Batch] = field(default_factory=list)
    routing: str = ""
    untouched: bool = True

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return Position.of(PARTITION, {"row": self.rows})

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        """Keep nothing."""

    def open(self) -> BatchLoop:
        lease = self.store.lease(TASK, "w", _now(), timedelta(minutes=1))
        return BatchLoop(
            store=self.store,
            lease=lease,
            reader=self,
            flow=Attempts(self),
            limit=ReadLimit(),
            clock=_now,
        )


@dataclass
class Attempts:
    """Writes down each attempt."""

    system: System

    @property
    def untouched(self) -> bool:
        return self.system.untouched

    @property
    def routing(self) -> str:
        return self.system.routing

    @property
    def columns(self) -> None:
        """Nothing is planned here."""

    def run(self, batch: Batch) -> Counts:
        self.system.tried.append(batch)
        return self.system.run(batch)


def _now() -> datetime:
    return datetime.now(UTC)


def failing(*errors: Exception) -> Callable[[Batch], Counts]:
    left = list(errors)

    def run(batch: Batch) -> Counts:
        if left:
            raise left.pop(0)
        return Counts()

    return run


def test_a_range_that_changes_before_it_is_read_is_planned_anew() -> None:
    system = System(run=failing(RangeChangedError("changed")))
    loop = system.open()
    done = loop.step()
    assert [batch.id for batch in system.tried] == [1, 2]
    assert done is not None
    assert system.store.position(TASK) == done.end
    assert [batch.id for batch in system.store.batches(TASK)] == [2]


class Blip(Store):
    """A store that is away when it is first asked for batches."""

    away = True

    def batches(self, *args: Any, **options: Any) -> list[Batch]:
        if self.away:
            self.away = False
            raise StoreUnavailableError
        return list(super().batches(*args, **options))


def test_a_batch_that_never_ran_since_the_store_was_away_is_planned_again() -> None:
    system = System(run=failing(RangeChangedError("changed")), store=Blip())
    loop = system.open()
    with pytest.raises(StoreUnavailableError):
        loop.step()
    assert loop.step() is not None
    assert not any(batch.again for batch in system.tried)


def test_a_range_that_changes_all_the_time_is_tried_again_later() -> None:
    system = System(run=failing(*(RangeChangedError("changed") for _ in range(5))))
    loop = system.open()
    with pytest.raises(RetriableError, match="changed during each attempt to read it: changed"):
        loop.step()
    assert system.store.unfinished_batch(TASK) is None
    assert loop.step() is not None


def test_a_range_that_has_changed_since_a_crash_is_kept_and_its_way_out_is_named() -> None:
    system = System(run=failing(KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        system.open().step()
    for _ in range(2):
        system.run = failing(RangeChangedError("changed", fix="Put it back."))
        with pytest.raises(RangeChangedError) as failed:
            system.open().step()
        assert failed.value.fix.startswith("Put it back. If the batch can no longer run")
        assert WAY_OUT in failed.value.fix
    assert [batch.id for batch in system.tried] == [1, 1, 1]


@pytest.mark.parametrize("error", [DataLostError("gone"), StateError("another topic")])
def test_a_range_that_cannot_be_read_names_the_way_out(error: Exception) -> None:
    system = System(run=failing(error))
    with pytest.raises(type(error)) as failed:
        system.open().step()
    assert WAY_OUT in str(failed.value)
    assert system.store.unfinished_batch(TASK) is not None


@pytest.mark.parametrize(("untouched", "kept"), [(True, False), (False, True)])
def test_input_that_cannot_be_read_may_be_repaired(*, untouched: bool, kept: bool) -> None:
    error = SourceError("broken", fix="Repair or delete the file.")
    system = System(run=failing(error), untouched=untouched)
    with pytest.raises(SourceError) as failed:
        system.open().step()
    assert failed.value.fix.endswith("delete the file.") == (not kept)
    assert (system.store.unfinished_batch(TASK) is not None) == kept


@pytest.mark.parametrize(("untouched", "kept"), [(True, False), (False, True)])
def test_a_record_that_is_not_tolerated_may_be_repaired(*, untouched: bool, kept: bool) -> None:
    error = ToleranceExceededError(
        stage="TRANSFORMATION", plugin="Cast", exception="DataException", message="broken"
    )
    system = System(run=failing(error), untouched=untouched)
    with pytest.raises(ToleranceExceededError):
        system.open().step()
    assert (system.store.unfinished_batch(TASK) is not None) == kept
    assert system.open().step() is not None
    assert [batch.id for batch in system.tried] == ([1, 1] if kept else [1, 2])


def test_what_divides_a_batch_among_topics_is_kept_with_its_intent() -> None:
    system = System(routing="by shard", untouched=False, run=failing(ValueError("away")))
    with pytest.raises(ValueError, match="away"):
        system.open().step()
    system.routing = "by another shard"
    system.open().step()
    assert [batch.routing for batch in system.tried] == ["by shard", "by shard"]


@pytest.mark.parametrize(
    ("routing", "untouched", "kept"),
    [("by shard", True, False), ("by shard", False, True), ("", True, True)],
)
def test_only_a_divided_batch_that_has_written_nothing_is_dropped_when_it_fails(
    routing: str, untouched: bool, kept: bool
) -> None:
    system = System(routing=routing, untouched=untouched, run=failing(ValueError("wrong")))
    with pytest.raises(ValueError, match="wrong"):
        system.open().step()
    assert (system.store.unfinished_batch(TASK) is not None) is kept
    assert system.open().step() is not None
    assert [batch.id for batch in system.tried] == ([1, 1] if kept else [1, 2])


def test_a_divided_batch_is_not_dropped_when_it_fails_again() -> None:
    system = System(routing="by shard", run=failing(KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        system.open().step()
    system.run = failing(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        system.open().step()
    assert system.store.unfinished_batch(TASK) is not None
