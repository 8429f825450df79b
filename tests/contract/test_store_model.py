"""All stores do the same, and keep Guarantees 2 and 3, whatever comes in whichever order.

A machine of hypothesis drives a store in memory and one in a file side by side: owners that
come, live on after they have lost a task, and finish late; clocks that jump; offsets that are
moved; connectors that are removed and made again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.contract.model_connector_store import MemoryConnectorStore
from tests.contract.model_store import MemoryStore

from headrace.model import (
    Batch,
    ConnectorKind,
    Counts,
    Lease,
    Stamp,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import HeadraceError, Position
from headrace.sdk.errors import StaleEpochError
from headrace.store import (
    ConnectorStore,
    Store,
    TaskRemovedError,
)

LEASE = timedelta(seconds=30)
NAME = "c"
TASKS = st.sampled_from([TaskId(NAME, 0), TaskId(NAME, 1)])
OWNERS = st.sampled_from(["one", "two"])
STATES = st.sampled_from([TaskState.RUNNING, TaskState.PAUSED, TaskState.FAILED])
WHICH = st.integers(0, 99)
STALE = {StaleEpochError, TaskRemovedError}


def at(line: int) -> Position:
    return Position.of({"file": "a"}, {"line": line})


class StoreMachine(RuleBasedStateMachine):
    """Does everything to each store, and compares what they say."""

    @initialize()
    def begin(self) -> None:
        memory = MemoryStore()
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "store.db"
        self.states: list[Store] = [cast("Store", memory), Store(file)]
        self.wanted: list[ConnectorStore] = [
            cast("ConnectorStore", MemoryConnectorStore(memory)),
            ConnectorStore(file),
        ]
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.leases: list[Lease] = []
        self.batches: list[Batch] = []
        self.epochs: dict[TaskId, int] = {}
        self.lives = 0
        self.ids: dict[tuple[TaskId, int], int] = {}
        self.make()

    def make(self) -> None:
        self.lives += 1
        for store in self.wanted:
            store.create(NAME, ConnectorKind.SOURCE, {}, TargetState.RUNNING, self.stamp)

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.now, "ann")

    def both(self, call: Callable[[Any], object], stores: list[Any] | None = None) -> Any:
        """Do something to each store; return what they say, or the kind of error."""
        said: list[Any] = []
        for store in stores or self.states:
            try:
                said.append(call(store))
            except HeadraceError as error:
                said.append(type(error))
        assert said[0] == said[1]
        return said[0]

    def held(self, which: int) -> Lease | None:
        """Return any lease that there ever was, more often one of the last."""
        newest = self.leases[-3:] if which % 3 else self.leases
        return newest[which % len(newest)] if newest else None

    def is_newest(self, lease: Lease) -> bool:
        return self.epochs.get(lease.task) == lease.epoch

    @rule(task=TASKS, owner=OWNERS, state=st.none() | STATES)
    def lease(self, task: TaskId, owner: str, state: TaskState | None) -> None:
        status = state and TaskStatus(state, "why" if state is TaskState.FAILED else None)
        found = self.both(lambda s: s.lease(task, owner, self.now, LEASE, status))
        if isinstance(found, Lease):
            # Guarantee 3: an epoch is never given twice, not even to a task made again.
            assert found.epoch > self.epochs.get(task, 0)
            self.epochs[task] = found.epoch
            self.leases.append(found)

    @rule(which=WHICH, more=st.integers(1, 5))
    def begin_batch(self, which: int, more: int) -> None:
        lease = self.held(which)
        if lease is None:
            return
        start = self.states[0].position(lease.task)
        end = at(which * 10 + more)
        found = self.both(
            lambda s: s.begin_batch(lease.task, lease.epoch, start, end, self.now)
        )
        if isinstance(found, Batch):
            assert self.is_newest(lease)
            # Guarantee 2: ids only grow, whatever happens to offsets.
            assert found.id > self.ids.get((lease.task, self.lives), 0)
            self.ids[lease.task, self.lives] = found.id
            self.batches.append(found)
        else:
            assert self.is_newest(lease) or found in STALE

    @rule(which=WHICH, rows=st.integers(0, 3))
    def finish_batch(self, which: int, rows: int) -> None:
        lease = self.held(which)
        if lease is None or not self.batches:
            return
        batch = self.batches[-1 - which % min(2, len(self.batches))]
        counts, before = Counts(read=rows, written=rows), self.position(lease.task)
        found = self.both(
            lambda s: s.finish_batch(lease.task, lease.epoch, batch.id, counts, self.now)
        )
        if not isinstance(found, Batch):
            assert self.position(lease.task) == before
            assert self.is_newest(lease) or found in STALE

    @rule(which=WHICH)
    def abandon_batch(self, which: int) -> None:
        lease = self.held(which)
        if lease is not None and self.batches:
            last = self.batches[-1].id
            self.both(lambda s: s.abandon_batch(lease.task, lease.epoch, last))

    @rule(which=WHICH, state=STATES, fenced=st.booleans())
    def end(self, which: int, state: TaskState, fenced: bool) -> None:
        lease = self.held(which)
        if lease is None:
            return
        write = "fence" if fenced else "end"
        status = TaskStatus(state)
        found = self.both(lambda s: getattr(s, write)(lease, status, self.now))
        if fenced and found is None:
            self.epochs[lease.task] = lease.epoch + 1

    @rule(which=WHICH)
    def release(self, which: int) -> None:
        lease = self.held(which)
        if lease is not None:
            self.both(lambda s: s.release(lease))

    @rule()
    def renew_all_that_there_ever_were(self) -> None:
        renewed = self.both(lambda s: dict(s.renew(self.leases[-6:], self.now, LEASE)))
        assert all(self.is_newest(lease) for lease in renewed.values())

    @rule(which=WHICH, items=st.integers(0, 2))
    def ledger_append(self, which: int, items: int) -> None:
        lease = self.held(which)
        if lease is not None:
            rows = [{"n": n} for n in range(items)]
            self.both(lambda s: s.ledger_append(lease.task, lease.epoch, rows))

    @rule(line=st.none() | st.integers(0, 9))
    def move_offsets(self, line: int | None) -> None:
        position = Position() if line is None else at(line)
        moved = {TaskId(NAME, n): position for n in (0, 1)}
        found = self.both(lambda s: s.set_positions(NAME, moved, self.stamp), self.wanted)
        if found is None:
            for task in moved:
                assert self.position(task) == position
                self.epochs[task] = self.epochs.get(task, 0) + 1

    @rule()
    def remove_and_make_again(self) -> None:
        self.both(lambda s: s.delete(NAME, self.stamp), self.wanted)
        assert self.position(TaskId(NAME, 0)) == Position()
        self.make()

    @rule(seconds=st.integers(-120, 120))
    def put_the_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    def position(self, task: TaskId) -> Position:
        found: Position = self.both(lambda s: s.position(task))
        return found

    @invariant()
    def they_say_the_same(self) -> None:
        self.both(lambda s: sorted(s.leases(), key=lambda each: each.task))
        self.both(lambda s: s.statuses(NAME))
        self.both(lambda s: s.all_totals(NAME))
        for task in (TaskId(NAME, 0), TaskId(NAME, 1)):
            self.both(partial(_told, task))
        assert all(totals.balanced for totals in self.states[0].all_totals(NAME).values())

    def teardown(self) -> None:
        for state in self.states:
            state.close()
        for wanted in self.wanted:
            wanted.close()
        self.folder.cleanup()


def _told(task: TaskId, store: Store) -> object:
    return store.batches(task), store.position(task), store.ledger_length(task)


StoreMachine.TestCase.settings = settings(
    stateful_step_count=30, max_examples=25, deadline=None
)
TestStores = StoreMachine.TestCase
