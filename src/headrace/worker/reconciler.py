"""Reconciles the connectors that a worker runs with their target states in the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from headrace.model import (
    Connector,
    ConnectorState,
    ConnectorStatus,
    RestartPolicy,
    Retention,
    TargetState,
    TaskId,
    TaskState,
)
from headrace.plugins import PluginTimeoutError, aside, has_ended
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import RetriableError
from headrace.store import ConnectorStore, StoreUnavailableError
from headrace.worker.events import Measures, Unmeasured, as_it_is
from headrace.worker.restarts import traced

if TYPE_CHECKING:
    from headrace.worker.restarts import Part, Restarts
    from headrace.worker.task import Task
    from headrace.worker.worker import Worker


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Planned:
    """The planned tasks of a connector.

    Args:
        make: Creates the task of a number, without starting it.
        topics: The topics that the connector is known in advance to use.
    """

    configs: Mapping[int, Mapping[str, str]]
    make: Callable[[int], Task]
    topics: frozenset[str] = frozenset()


class Planning(Protocol):
    """A connector that plans its tasks. One thread at a time calls it."""

    def plan(self) -> Planned:
        """Return the tasks to run now; the first call starts the connector.

        May raise anything, and may hang, since it calls a plugin.
        """

    def changed(self) -> bool:
        """Return whether a new plan may differ. Called about once a second; must be quick."""

    def close(self) -> None:
        """Stop the connector. Called once, also after ``plan`` has failed."""


@dataclass
class LocalConnector:
    """A connector as it was last reconciled, and its running tasks."""

    connector: Connector
    planning: Planning | None = None
    planned: Planned | None = None
    running: list[TaskId] = field(default_factory=list)
    restarts: Mapping[int, int] = field(default_factory=dict)
    """The number of requested restarts of each task at the time it was started."""
    failed: bool = False
    """Whether the connector itself has failed; its tasks may still run."""
    done: bool = False
    """Whether the connector is completely reconciled; otherwise that is retried."""

    def settled(self, stored: Connector) -> bool:
        """Return whether the connector is already as it is wanted now."""
        here, shown = self.connector, stored.status.state
        if shown is ConnectorState.UNASSIGNED and stored.target is not TargetState.RUNNING:
            return False  # its target was RUNNING in between, which was not noticed
        return self.done and (here.version, here.target, here.restarts) == (
            stored.version,
            stored.target,
            stored.restarts,
        )

    def late(self, asked: Mapping[int, int]) -> set[int]:
        """Return the numbers of the tasks with restart requests since their last start."""
        return {n for n, count in asked.items() if self.restarts.get(n, 0) != count}

    def unchanged(self, stored: Connector, planned: Planned) -> set[int]:
        """Return the numbers of the running tasks that match the new plan."""
        if self.planned is None or self.connector.version != stored.version:
            return set()
        had, has = self.planned.configs, planned.configs
        running = {task.number for task in self.running}
        return {n for n in running if n in has and has[n] == had.get(n)}

    def changed(self, stored: Connector, planned: Planned | None) -> set[int]:
        """Return the numbers of the running tasks that do not match the new plan."""
        stay = set() if planned is None else self.unchanged(stored, planned)
        return {task.number for task in self.running} - stay

    def closing(self, after: Future[Any] | None = None) -> Future[None] | None:
        """Begin to stop the connector, if it is started, once the call ``after`` has ended."""
        planning, self.planning = self.planning, None
        if planning is None:
            return None
        name = self.connector.name

        def close() -> None:
            if after is not None:
                wait([after])
            try:
                planning.close()
            except Exception:
                log.warning("connector did not stop cleanly", connector=name, exc_info=True)

        return aside(f"headrace-stop-{name}", close)


def close_all(local: Iterable[LocalConnector], stop_timeout: timedelta) -> None:
    """Stop connectors in parallel. A connector that hangs is abandoned after a timeout."""
    by = time.monotonic() + stop_timeout.total_seconds()
    closing = [(each.connector.name, each.closing()) for each in local]
    for name, stop in closing:
        if stop is not None and not has_ended(stop, by):
            log.warning("connector did not stop in time", connector=name)


T = TypeVar("T")
Work: TypeAlias = Generator[bool, None, T]
"""A generator that yields whenever it has to wait, and continues at the next call.

It yields whether it may be cancelled at that point because newer work supersedes it.
"""


@dataclass
class _Settlement:
    stored: Connector
    work: Work[None]
    failed: Callable[[], None]
    may_be_left: bool = False


@dataclass
class Settlements:
    """Reconciliation work, at most one per connector; while one waits, others proceed.

    Used by one thread only, so the work needs no locks.
    """

    _under_way: dict[str, _Settlement] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self._under_way

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, stored: Connector, work: Work[None], failed: Callable[[], None]) -> None:
        """Start work and run it until it waits. ``failed`` is called if it ever raises."""
        self._under_way[stored.name] = _Settlement(stored, work, failed)
        self._go_on(stored.name)

    def go_on(self) -> None:
        """Continue all work until it waits again. Raises StoreUnavailableError."""
        for name in list(self._under_way):
            self._go_on(name)

    def leave(self, name: str, stored: Connector | None) -> None:
        """Cancel the work on a connector if its target has changed and it may be cancelled."""
        now = self._under_way[name]
        if now.may_be_left and (stored is None or _target_of(stored) != _target_of(now.stored)):
            del self._under_way[name]
            now.work.close()

    def leave_all(self) -> None:
        while self._under_way:
            self._under_way.popitem()[1].work.close()

    def _go_on(self, name: str) -> None:
        now = self._under_way[name]
        try:
            with bound_contextvars(connector=name):
                now.may_be_left = next(now.work)
        except StopIteration:
            del self._under_way[name]
        except StoreUnavailableError:
            del self._under_way[name]
            now.failed()
            raise
        except Exception:
            # Continue with the other connectors; this one is retried.
            log.exception("cannot reconcile connector; retrying", connector=name)
            del self._under_way[name]
            now.failed()


def _target_of(stored: Connector) -> object:
    return stored.uid, stored.version, stored.target, stored.restarts


_MANY = 500
"""The maximum number of events to read; if there are more, all connectors are read instead."""
_PRUNE_SECONDS = 3600.0
"""How often old events are deleted."""
_ENDS = {TargetState.PAUSED: TaskState.PAUSED, TargetState.STOPPED: TaskState.STOPPED}


@dataclass(kw_only=True)
class Reconciler:
    """Compares the wanted state with what runs, and reconciles the difference.

    It reads only the wanted state, so it does not matter how a change was made, how many were
    made at once, or whether the worker was running at the time.

    Args:
        open_plan: Returns the planner of a connector's tasks; may raise anything.
        policy: Returns the restart policy of a connector; may raise anything.
        grace: How long a running step may take before it is cancelled.
        limit: How long a connector may take to start and to plan its tasks.
        lost_interval: The time between checks for lost tasks.
    """

    store: ConnectorStore
    worker: Worker
    open_plan: Callable[[Connector], Planning]
    clock: Callable[[], datetime]
    policy: Callable[[Connector], RestartPolicy] = lambda _: RestartPolicy()
    keep: Retention = field(default_factory=Retention)
    grace: timedelta = timedelta(seconds=5)
    limit: timedelta = timedelta(minutes=1)
    interval: timedelta = timedelta(seconds=1)
    lost_interval: timedelta = timedelta(seconds=10)
    measures: Measures = field(default_factory=Unmeasured)
    redact: Callable[[Exception], Exception] = as_it_is
    _local: dict[str, LocalConnector] = field(default_factory=dict)
    _settlements: Settlements = field(default_factory=Settlements)
    _again: set[str] = field(default_factory=set)
    """Connectors to check again, even without a new event."""
    _seen: int = -1
    _asked: SimpleQueue[tuple[str, Exception | None]] = field(default_factory=SimpleQueue)
    """Connectors that requested a new plan, or have failed."""
    _prune_at: float = 0.0
    _lost_at: float = 0.0
    _errors: RepeatedErrors = field(
        default_factory=lambda: RepeatedErrors(
            "cannot read target states", "target states can be read again"
        )
    )
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Reconcile until ``stop`` is called; blocks."""
        while not self._stopping.is_set():
            with self._errors.logged():
                self.step()
            self._woken.wait(self.interval.total_seconds())
            self._woken.clear()
        self._settlements.leave_all()
        close_all(self._local.values(), self._stop_timeout)

    def wake(self) -> None:
        """Check for changes at once. Thread-safe."""
        self._woken.set()

    def stop(self) -> None:
        """Stop reconciling; running tasks are left to the worker. Thread-safe."""
        self._stopping.set()
        self._woken.set()

    def reconfigure(self, name: str, error: Exception | None = None) -> None:
        """Make a connector plan its tasks again, or fail with ``error``. Thread-safe."""
        self._asked.put((name, error))
        self.wake()

    def step(self) -> None:
        """Check for changes once, and reconcile the connectors that have changed.

        Each connector is reconciled independently: work that waits for a plugin continues in a
        later step.
        """
        self._prune()
        self._settlements.go_on()
        for local, numbers in self._lost():
            self._settlements.begin(
                local.connector, self._add_lost(local, numbers), lambda: None
            )
        self._try_again()
        self._plan_asked()
        newest = self.store.last_event()
        late = {local.connector.name for local in self._at_rest() if not local.done}
        changed = dict(self._changed(newest)) if newest != self._seen else {}
        for name in (late | self._again) - changed.keys():
            changed[name] = self.store.connector(name)
        for name, stored in changed.items():
            self._see_to(name, stored)
        self._seen = newest

    def _at_rest(self) -> list[LocalConnector]:
        return [local for name, local in self._local.items() if name not in self._settlements]

    def _prune(self) -> None:
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + _PRUNE_SECONDS
            self.store.prune(self.keep, self.clock())

    def _see_to(self, name: str, stored: Connector | None) -> None:
        """Reconcile a connector, now or after the work on it that is in progress."""
        if name in self._settlements:
            self._settlements.leave(name, stored)
        if name in self._settlements:
            self._again.add(name)
            return
        self._again.discard(name)
        local = self._local.get(name)
        about = stored or (local.connector if local is not None else None)
        if about is not None:
            self._settlements.begin(
                about, self._look_at(name, stored), lambda: self._again.add(name)
            )

    def _look_at(self, name: str, stored: Connector | None) -> Work[None]:
        local = self._local.get(name)
        if local is not None and (stored is None or stored.uid != local.connector.uid):
            # The connector was deleted; the store already rejects writes of its tasks.
            yield from self._close(local)
            self._restarts.drop([name, *local.running])
            yield from self._end(local, TaskState.STOPPED)
            del self._local[name]
            self.measures.connector_gone(name)
        if stored is not None:
            yield from self._settle(stored)

    def _changed(self, newest: int) -> Mapping[str, Connector | None]:
        """Return the connectors with events since the last step; None for deleted ones."""
        if self._seen < 0 or newest - self._seen > _MANY:
            stored = {each.name: each for each in self.store.connectors()}
            return {**dict.fromkeys(self._local), **stored}
        events = self.store.events(after=self._seen, limit=_MANY)
        # Workers write the "state" events; they request no change.
        names = dict.fromkeys(event.connector for event in events if event.kind != "state")
        return {name: self.store.connector(name) for name in names}

    def _settle(self, stored: Connector) -> Work[None]:
        local = self._local.setdefault(stored.name, LocalConnector(stored))
        if local.settled(stored):
            yield from self._restart_tasks(local)
        elif stored.target is TargetState.RUNNING:
            yield from self._start(stored, local)
        else:
            yield from self._halt(stored, local)

    def _start(self, stored: Connector, local: LocalConnector) -> Work[None]:
        local.done = False
        yield from self._close(local)
        had = list(local.running)
        try:
            yield from self._stop(local, local.changed(stored, local.planned), seen_to=True)
            local.planning = yield from self._called(local, partial(self.open_plan, stored))
            planned = yield from self._planned(stored, local, local.planning)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; its connector fails alone
            yield from self._close(local)
            yield from self._end(local, TaskState.UNASSIGNED)
            local.connector = stored
            self._mark(had, TaskState.UNASSIGNED, stored)
            self._fail(local, error)
            return
        yield from self._run(stored, local, planned)

    def _called(self, local: LocalConnector, call: Callable[[], T]) -> Work[T]:
        """Call a plugin, and wait for the result while other connectors are reconciled.

        Raises PluginTimeoutError if the call takes longer than ``limit``.
        """
        answer = self._aside(f"headrace-plan-{local.connector.name}", call)
        by = time.monotonic() + self.limit.total_seconds()
        try:
            while not answer.done():
                if time.monotonic() > by:
                    raise PluginTimeoutError(self.limit)
                yield True
        finally:
            if not answer.done():
                local.closing(after=answer)  # its plan is not needed any more
        return answer.result()

    def _aside(self, name: str, work: Callable[[], T]) -> Future[T]:
        answer = aside(name, work)
        answer.add_done_callback(lambda _: self.wake())
        return answer

    def _planned(
        self, stored: Connector, local: LocalConnector, planning: Planning
    ) -> Work[Planned]:
        """Return the new plan after ending all tasks that do not match it.

        A source may plan by the positions of its tasks, which are final only when the tasks
        have ended.
        """
        planned = yield from self._called(local, planning.plan)
        while changed := local.changed(stored, planned):
            yield from self._stop(local, changed, seen_to=True)
            planned = yield from self._called(local, planning.plan)
        return planned

    def _plan_asked(self) -> None:
        """Replan the connectors that requested it; unchanged tasks keep running."""
        asked: dict[str, Exception | None] = {}
        while not self._asked.empty():
            name, error = self._asked.get()
            asked[name] = asked.get(name) or error
        for name, error in asked.items():
            if name in self._settlements:
                self._asked.put((name, error))
        for local in self._at_rest():
            name, error = local.connector.name, asked.get(local.connector.name)
            try:
                if error is not None:
                    self._fail(local, error)
                elif local.planning is not None and (name in asked or local.planning.changed()):
                    again = partial(self._asked.put, (name, None))
                    self._settlements.begin(
                        local.connector, self._plan_again(local, local.planning), again
                    )
            except StoreUnavailableError:
                for each in asked.items():
                    self._asked.put(each)
                raise
            except Exception:
                log.exception("cannot plan connector again", connector=name)

    def _plan_again(self, local: LocalConnector, planning: Planning) -> Work[None]:
        had = list(local.running)
        try:
            planned = yield from self._planned(local.connector, local, planning)
        except StoreUnavailableError:
            local.done = False  # some tasks may have ended
            raise
        except Exception as error:  # noqa: BLE001 - as in _start; tasks that stay run on
            ended = set(had) - set(local.running)
            self._mark(ended, TaskState.UNASSIGNED, local.connector)
            self._fail(local, error)
        else:
            yield from self._run(local.connector, local, planned)

    def _run(self, stored: Connector, local: LocalConnector, planned: Planned) -> Work[None]:
        """Run the planned tasks; tasks with an unchanged configuration keep running."""
        was_done, local.done = local.done, False
        if not self.store.plan(stored, planned.configs, self.clock()):
            return  # the connector has changed meanwhile; the next step handles that
        asked = {task.number: task.restarts for task in self.store.tasks(stored.name)}
        late = local.late(asked)
        stay = local.unchanged(stored, planned) - late
        settled = was_done and local.planned is not None and not local.failed
        local.connector, local.planned = stored, planned
        yield from self._stop(
            local, {task.number for task in local.running} - stay, seen_to=True
        )
        if not self._add(local, planned.configs.keys() - stay, asked):
            return
        self._restarts.forget([stored.name])
        self.store.add_topics(stored, planned.topics)
        if settled:
            self._show(local, ConnectorState.RUNNING)  # its tasks may have changed
            local.done = True
        else:
            self._set_state(local, ConnectorState.RUNNING)

    def _halt(self, stored: Connector, local: LocalConnector) -> Work[None]:
        local.done = False
        yield from self._close(local)
        yield from self._end(local, _ENDS[stored.target])
        local.connector, marked = stored, True
        if stored.target is TargetState.PAUSED:
            # Tasks left by another server that died were not ended here, or never ran.
            left = [TaskId(stored.name, task.number) for task in self.store.tasks(stored.name)]
            marked = self._mark(left, TaskState.PAUSED, stored)
        if stored.target is TargetState.STOPPED:
            # A stopped connector has no tasks, as in Kafka Connect; positions stay.
            local.planned = None
            self.store.plan(stored, {}, self.clock())
        self._set_state(local, ConnectorState(stored.target.value))
        local.done = marked

    def _restart_tasks(self, local: LocalConnector) -> Work[None]:
        asked = {task.number: task.restarts for task in self.store.tasks(local.connector.name)}
        late = local.late(asked)
        if not late or local.connector.target is not TargetState.RUNNING:
            local.restarts = asked
            return
        yield from self._stop(local, late, seen_to=True)
        self._add(local, late, asked)

    def _lost(self) -> list[tuple[LocalConnector, set[int]]]:
        """Return the numbers of lost tasks by connector; empty until the next check is due.

        A task is lost if the worker that took it died, or if the store was restored to an
        earlier state.
        """
        now = time.monotonic()
        if now < self._lost_at:
            return []
        self._lost_at = now + self.lost_interval.total_seconds()
        resting = self._at_rest()
        active = [each for each in resting if each.connector.target is TargetState.RUNNING]
        gone = self.worker.lost(task for each in active for task in each.running)
        numbers = [(each, {t.number for t in each.running if t in gone}) for each in active]
        found = [(each, some) for each, some in numbers if some]
        for each, some in found:
            log.warning(
                "restarting tasks that are shown as running but have no live worker",
                connector=each.connector.name,
                tasks=sorted(some),
            )
        return found

    def _add_lost(self, local: LocalConnector, numbers: set[int]) -> Work[None]:
        yield from self._stop(local, numbers, seen_to=False)
        self._add(local, numbers, local.restarts)

    def _try_again(self) -> None:
        for part in self._restarts.due():
            name = part.connector if isinstance(part, TaskId) else part
            local = self._local.get(name)
            if name in self._settlements:
                self._restarts.postpone(part)
            elif local is not None:
                postpone = partial(self._restarts.postpone, part)
                self._settlements.begin(
                    local.connector, self._start_failed(part, local), postpone
                )

    def _start_failed(self, part: Part, local: LocalConnector) -> Work[None]:
        stored = self.store.connector(local.connector.name)
        if stored is None or stored.uid != local.connector.uid:
            return
        if stored.target is not TargetState.RUNNING:
            return
        if isinstance(part, TaskId):
            yield from self._stop(local, {part.number}, seen_to=False)
            self._add(local, {part.number}, local.restarts)
        else:
            yield from self._start(stored, local)

    def _add(
        self, local: LocalConnector, numbers: Collection[int], asked: Mapping[int, int]
    ) -> bool:
        """Start planned tasks; return False if the connector failed."""
        local.restarts = asked
        planned = local.planned
        if planned is None:
            return True
        try:
            tasks = [planned.make(n) for n in sorted(numbers) if n in planned.configs]
        except Exception as error:  # noqa: BLE001 - it may call a plugin
            self._fail(local, error)
            return False
        added = [task.id for task in tasks]
        self._restarts.follow(added, self._policy(local.connector))
        self.worker.add(tasks, local.connector.uid)
        local.running += added
        return True

    def _stop(self, local: LocalConnector, numbers: set[int], *, seen_to: bool) -> Work[None]:
        """End tasks that will be restarted; ``seen_to`` resets their restart counts."""
        ended = [task for task in local.running if task.number in numbers]
        yield from self._ended(ended, TaskState.RESTARTING)
        if seen_to:
            self._restarts.forget(ended)  # including tasks that failed while ending
        local.running = [task for task in local.running if task.number not in numbers]

    def _end(self, local: LocalConnector, state: TaskState) -> Work[None]:
        self._restarts.forget(local.running)
        yield from self._ended(local.running, state)
        self._restarts.forget(local.running)  # tasks that failed while ending
        local.running = []

    def _ended(self, tasks: Collection[TaskId], state: TaskState) -> Work[None]:
        """Let the worker end tasks, which takes at most twice the grace period."""
        if not tasks:
            return
        end = partial(self.worker.end, dict.fromkeys(tasks, state), self.grace)
        ending = self._aside("headrace-end", end)
        while not ending.done():
            yield False
        ending.result()

    def _mark(self, tasks: Iterable[TaskId], state: TaskState, stored: Connector) -> bool:
        marked = [self.worker.mark(task, state, stored.uid) for task in tasks]
        return all(marked)

    def _close(self, local: LocalConnector) -> Work[None]:
        """Stop a connector; it is abandoned after a timeout if it hangs."""
        closing = local.closing()
        by = time.monotonic() + self._stop_timeout.total_seconds()
        while closing is not None and not closing.done():
            if time.monotonic() > by:
                log.warning("connector did not stop in time", connector=local.connector.name)
                return
            yield False

    @property
    def _stop_timeout(self) -> timedelta:
        return 2 * self.grace  # the same as for tasks

    @property
    def _restarts(self) -> Restarts:
        return self.worker.restarts

    def _policy(self, stored: Connector) -> RestartPolicy:
        try:
            return self.policy(stored)
        except Exception as error:  # noqa: BLE001 - its configuration was checked by another version
            log.warning(
                "cannot read restart policy; using the default",
                connector=stored.name,
                why=str(error),
            )
            return RestartPolicy()

    def _fail(self, local: LocalConnector, error: Exception) -> None:
        """Store that a connector has failed, and schedule a restart if its policy allows."""
        stored = local.connector
        local.failed = True
        log.error("connector failed", connector=stored.name, why=str(error))
        policy = self._policy(stored)
        if isinstance(error, RetriableError):
            policy = policy.without_end()  # its tasks also wait for a busy system without limit
        self._restarts.follow([stored.name], policy)
        verdict = self._restarts.failed(stored.name, error)
        now = self.clock()
        trace, next_try = traced(self.redact(error), verdict, now)
        status = ConnectorStatus(ConnectorState.FAILED, self.worker.owner, trace, next_try)
        self.store.set_status(stored, status, now)
        self._show(local, ConnectorState.FAILED)
        local.done = True

    def _show(self, local: LocalConnector, state: ConnectorState) -> None:
        tasks = [task.number for task in self.store.tasks(local.connector.name)]
        self.measures.connector_changed(local.connector, state, tasks)

    def _set_state(self, local: LocalConnector, state: ConnectorState) -> None:
        local.failed = False
        status = ConnectorStatus(state, self.worker.owner)
        self.store.set_status(local.connector, status, self.clock())
        self._show(local, state)
        local.done = True
