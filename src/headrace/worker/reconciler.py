"""Makes a worker run what the store says is wanted."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from headrace.model import (
    ConnectorState,
    ConnectorStatus,
    RestartPolicy,
    Retention,
    TargetState,
    TaskId,
    TaskState,
)
from headrace.plugins import PluginTimeoutError, aside
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import RetriableError
from headrace.store import StoreUnavailableError
from headrace.worker.events import as_it_is, traced
from headrace.worker.owners import LostTasks
from headrace.worker.planned import KeptConnector, close_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future
    from datetime import datetime

    from headrace.model import Connector
    from headrace.store import ConnectorStore
    from headrace.worker.events import ConnectorEvents
    from headrace.worker.planned import Planned, Planning
    from headrace.worker.restarts import Part, Restarts
    from headrace.worker.worker import Worker

log = structlog.get_logger(__name__)


T = TypeVar("T")
Work: TypeAlias = Generator[bool, None, T]
"""Work that stops where it has to wait, and goes on when it is asked for its next value.

It gives whether it may be left there for good, as newer work makes it needless.
"""


@dataclass
class _Settlement:
    """Work on a connector as it was wanted when that began."""

    wanted: Connector
    work: Work[None]
    failed: Callable[[], None]
    may_be_left: bool = False


@dataclass
class Settlements:
    """Work on connectors, at most one on each: where one waits, others go on.

    One thread uses it, so that the work on all of them needs no locks.
    """

    _under_way: dict[str, _Settlement] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        """Return whether something is being done about a connector."""
        return name in self._under_way

    def __len__(self) -> int:
        """Return about how many connectors something is being done."""
        return len(self._under_way)

    def begin(self, wanted: Connector, work: Work[None], failed: Callable[[], None]) -> None:
        """Do work up to where it waits. ``failed`` is called if it raises, then or later."""
        self._under_way[wanted.name] = _Settlement(wanted, work, failed)
        self._go_on(wanted.name)

    def go_on(self) -> None:
        """Do all work up to where it waits again. Raises StoreUnavailableError."""
        for name in list(self._under_way):
            self._go_on(name)

    def leave(self, name: str, wanted: Connector | None) -> None:
        """Leave what is needless now that a connector is wanted as this, if that can be."""
        now = self._under_way[name]
        if now.may_be_left and (wanted is None or _aim(wanted) != _aim(now.wanted)):
            del self._under_way[name]
            now.work.close()

    def leave_all(self) -> None:
        """Leave everything."""
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
            # The others are settled all the same, and this one is tried again.
            log.exception("connector could not be settled", connector=name)
            del self._under_way[name]
            now.failed()


def _aim(wanted: Connector) -> object:
    return wanted.uid, wanted.version, wanted.target, wanted.restarts


_MANY = 500
"""How many changes are looked at one by one; where there are more, all is looked at."""
_PRUNE_SECONDS = 3600.0
"""How often old events are forgotten."""
_ENDS = {TargetState.PAUSED: TaskState.PAUSED, TargetState.STOPPED: TaskState.STOPPED}


@dataclass(kw_only=True)
class Reconciler:
    """Compares what is wanted with what runs, and settles the difference.

    It only reads what is wanted, so that it does not matter how a change came, how many came
    at once, or whether the worker was there to see it.

    Args:
        store: Where connectors are kept.
        worker: What runs tasks.
        open_plan: Gives what plans a connector's tasks; may raise anything.
        clock: Gives the present, aware.
        policy: Says when what fails of a connector is started anew; may raise anything.
        keep: How long events are kept.
        grace: How long a running step may take until it is cancelled.
        limit: How long a connector may take to start and to plan its tasks.
        interval: How often it looks; ``wake`` makes it look at once.
        lost: Finds tasks that nobody runs.
        listener: Who learns how connectors are.
        redact: Takes secrets out of an error before it is told.
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
    lost: LostTasks = field(default_factory=LostTasks)
    listener: ConnectorEvents | None = None
    redact: Callable[[Exception], Exception] = as_it_is
    _kept: dict[str, KeptConnector] = field(default_factory=dict)
    _settlements: Settlements = field(default_factory=Settlements)
    _again: set[str] = field(default_factory=set)
    """Connectors that are to be looked at once more, whatever happens."""
    _seen: int = -1
    _asked: SimpleQueue[tuple[str, Exception | None]] = field(default_factory=SimpleQueue)
    """Connectors that want to plan anew, or have failed."""
    _prune_at: float = 0.0
    _errors: RepeatedErrors = field(
        default_factory=lambda: RepeatedErrors(
            "target states cannot be read", "target states can be read again"
        )
    )
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Settle what is wanted until ``stop`` is called; blocks."""
        while not self._stopping.is_set():
            self._woken.clear()
            with self._errors.told():
                self.step()
            self._woken.wait(self.interval.total_seconds())
        self._settlements.leave_all()
        close_all(self._kept.values(), self._stop_timeout)

    @property
    def busy(self) -> bool:
        """Whether something is being done about a connector that waits for a plugin."""
        return len(self._settlements) > 0

    def wake(self) -> None:
        """Look at once. Any thread may call it."""
        self._woken.set()

    def stop(self) -> None:
        """Look no more; what runs is left to the worker. Any thread may call it."""
        self._stopping.set()
        self._woken.set()

    def reconfigure(self, name: str, error: Exception | None = None) -> None:
        """Let a connector plan its tasks anew, or fail. Any thread may call it."""
        self._asked.put((name, error))
        self.wake()

    def step(self) -> None:
        """Look once, and settle what has changed since the last look.

        Connectors are settled each by itself: what waits for a plugin goes on in a later look.
        """
        self._prune()
        self._settlements.go_on()
        for kept, numbers in self.lost.found(self._at_rest(), self.worker.lost):
            self._settlements.begin(kept.connector, self._add_lost(kept, numbers), lambda: None)
        self._try_again()
        self._plan_anew()
        newest = self.store.last_event()
        late = {kept.connector.name for kept in self._at_rest() if not kept.done}
        changed = dict(self._changed(newest)) if newest != self._seen else {}
        for name in (late | self._again) - changed.keys():
            changed[name] = self.store.connector(name)
        for name, wanted in changed.items():
            self._see_to(name, wanted)
        self._seen = newest

    def _at_rest(self) -> list[KeptConnector]:
        """Return the connectors about which nothing is being done."""
        return [kept for name, kept in self._kept.items() if name not in self._settlements]

    def _prune(self) -> None:
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + _PRUNE_SECONDS
            self.store.prune(self.keep, self.clock())

    def _see_to(self, name: str, wanted: Connector | None) -> None:
        """Settle a connector, now or when what is being done about it allows."""
        if name in self._settlements:
            self._settlements.leave(name, wanted)
        if name in self._settlements:
            self._again.add(name)
            return
        self._again.discard(name)
        kept = self._kept.get(name)
        about = wanted or (kept.connector if kept is not None else None)
        if about is not None:
            self._settlements.begin(
                about, self._look_at(name, wanted), lambda: self._again.add(name)
            )

    def _look_at(self, name: str, wanted: Connector | None) -> Work[None]:
        kept = self._kept.get(name)
        if kept is not None and (wanted is None or wanted.uid != kept.connector.uid):
            # It is no more; what its tasks still write is refused by the store already.
            yield from self._close(kept)
            self._restarts.drop([name, *kept.running])
            yield from self._end(kept, TaskState.STOPPED)
            del self._kept[name]
            if self.listener is not None:
                self.listener.connector_gone(name)
        if wanted is not None:
            yield from self._settle(wanted)

    def _changed(self, newest: int) -> Mapping[str, Connector | None]:
        """Return the connectors of the events since the last look; None for those gone."""
        if self._seen < 0 or newest - self._seen > _MANY:
            wanted = {each.name: each for each in self.store.connectors()}
            return {**dict.fromkeys(self._kept), **wanted}
        events = self.store.events(after=self._seen, limit=_MANY)
        # How connectors are is what workers tell, and asks for nothing.
        names = dict.fromkeys(event.connector for event in events if event.kind != "state")
        return {name: self.store.connector(name) for name in names}

    def _settle(self, wanted: Connector) -> Work[None]:
        kept = self._kept.setdefault(wanted.name, KeptConnector(wanted))
        if kept.settled(wanted):
            yield from self._restart_tasks(kept)
        elif wanted.target is TargetState.RUNNING:
            yield from self._start(wanted, kept)
        else:
            yield from self._halt(wanted, kept)

    def _start(self, wanted: Connector, kept: KeptConnector) -> Work[None]:
        kept.done = False
        yield from self._close(kept)
        had = list(kept.running)
        try:
            yield from self._stop(kept, kept.changed(wanted, kept.planned), seen_to=True)
            kept.planning = yield from self._called(kept, partial(self.open_plan, wanted))
            planned = yield from self._planned(wanted, kept, kept.planning)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; its connector fails alone
            yield from self._close(kept)
            yield from self._end(kept, TaskState.UNASSIGNED)
            kept.connector = wanted
            self._mark(had, TaskState.UNASSIGNED, wanted)
            self._fail(kept, error)
            return
        yield from self._run(wanted, kept, planned)

    def _called(self, kept: KeptConnector, call: Callable[[], T]) -> Work[T]:
        """Call a plugin, and wait for its answer while other connectors are settled.

        Raises PluginTimeoutError when that does not come in time.
        """
        answer = self._aside(f"headrace-plan-{kept.connector.name}", call)
        by = time.monotonic() + self.limit.total_seconds()
        try:
            while not answer.done():
                if time.monotonic() > by:
                    raise PluginTimeoutError(self.limit)
                yield True
        finally:
            if not answer.done():
                kept.closing(after=answer)  # nobody has a use any more for what it plans
        return answer.result()

    def _aside(self, name: str, work: Callable[[], T]) -> Future[T]:
        answer = aside(name, work)
        answer.add_done_callback(lambda _: self.wake())
        return answer

    def _planned(
        self, wanted: Connector, kept: KeptConnector, planning: Planning
    ) -> Work[Planned]:
        """Return what is to run, once all tasks have ended that would run otherwise.

        A source may plan by where its tasks stand, which is final only when they have ended.
        """
        planned = yield from self._called(kept, planning.plan)
        while changed := kept.changed(wanted, planned):
            yield from self._stop(kept, changed, seen_to=True)
            planned = yield from self._called(kept, planning.plan)
        return planned

    def _plan_anew(self) -> None:
        """Let connectors plan again that asked for it; what they plan as before runs on."""
        asked: dict[str, Exception | None] = {}
        while not self._asked.empty():
            name, error = self._asked.get()
            asked[name] = asked.get(name) or error
        for name, error in asked.items():
            if name in self._settlements:
                self._asked.put((name, error))
        for kept in self._at_rest():
            name, error = kept.connector.name, asked.get(kept.connector.name)
            try:
                if error is not None:
                    self._fail(kept, error)
                elif kept.planning is not None and (name in asked or kept.planning.changed()):
                    again = partial(self._asked.put, (name, None))
                    self._settlements.begin(
                        kept.connector, self._plan_again(kept, kept.planning), again
                    )
            except StoreUnavailableError:
                for each in asked.items():
                    self._asked.put(each)
                raise
            except Exception:
                log.exception("connector could not be planned again", connector=name)

    def _plan_again(self, kept: KeptConnector, planning: Planning) -> Work[None]:
        had = list(kept.running)
        try:
            planned = yield from self._planned(kept.connector, kept, planning)
        except StoreUnavailableError:
            kept.done = False  # some tasks may have ended
            raise
        except Exception as error:  # noqa: BLE001 - as in _start; tasks that stay run on
            ended = set(had) - set(kept.running)
            self._mark(ended, TaskState.UNASSIGNED, kept.connector)
            self._fail(kept, error)
        else:
            yield from self._run(kept.connector, kept, planned)

    def _run(self, wanted: Connector, kept: KeptConnector, planned: Planned) -> Work[None]:
        """Run what is planned; tasks stay whose configuration does."""
        was_done, kept.done = kept.done, False
        if not self.store.plan(wanted, planned.configs, self.clock()):
            return  # it has changed meanwhile, which the next look will see
        asked = {task.number: task.restarts for task in self.store.tasks(wanted.name)}
        late = kept.late(asked)
        stay = kept.unchanged(wanted, planned) - late
        settled = was_done and kept.planned is not None and not kept.failed
        kept.connector, kept.planned = wanted, planned
        yield from self._stop(kept, {task.number for task in kept.running} - stay, seen_to=True)
        if not self._add(kept, planned.configs.keys() - stay, asked):
            return
        self._restarts.forget([wanted.name])
        self.store.add_topics(wanted, planned.topics)
        if settled:
            self._show(kept, ConnectorState.RUNNING)  # its tasks may be others
            kept.done = True
        else:
            self._tell(kept, ConnectorState.RUNNING)

    def _halt(self, wanted: Connector, kept: KeptConnector) -> Work[None]:
        kept.done = False
        yield from self._close(kept)
        yield from self._end(kept, _ENDS[wanted.target])
        kept.connector = wanted
        if wanted.target is TargetState.PAUSED:
            # Those that another server left as it died were not ended here.
            left = [TaskId(wanted.name, task.number) for task in self.store.tasks(wanted.name)]
            self._mark(left, TaskState.PAUSED, wanted)
        if wanted.target is TargetState.STOPPED:
            # A stopped connector has no tasks, as in Kafka Connect; positions stay.
            kept.planned = None
            self.store.plan(wanted, {}, self.clock())
        self._tell(kept, ConnectorState(wanted.target.value))

    def _restart_tasks(self, kept: KeptConnector) -> Work[None]:
        """Start tasks anew that were asked to, while the others run on."""
        asked = {task.number: task.restarts for task in self.store.tasks(kept.connector.name)}
        late = kept.late(asked)
        if not late or kept.connector.target is not TargetState.RUNNING:
            kept.restarts = asked
            return
        yield from self._stop(kept, late, seen_to=True)
        self._add(kept, late, asked)

    def _add_lost(self, kept: KeptConnector, numbers: set[int]) -> Work[None]:
        yield from self._stop(kept, numbers, seen_to=False)
        self._add(kept, numbers, kept.restarts)

    def _try_again(self) -> None:
        """Start anew what has failed, and has waited long enough."""
        for part in self._restarts.due():
            name = part.connector if isinstance(part, TaskId) else part
            kept = self._kept.get(name)
            if name in self._settlements:
                self._restarts.postpone(part)
            elif kept is not None:
                postpone = partial(self._restarts.postpone, part)
                self._settlements.begin(
                    kept.connector, self._start_failed(part, kept), postpone
                )

    def _start_failed(self, part: Part, kept: KeptConnector) -> Work[None]:
        wanted = self.store.connector(kept.connector.name)
        if wanted is None or wanted.uid != kept.connector.uid:
            return
        if wanted.target is not TargetState.RUNNING:
            return
        if isinstance(part, TaskId):
            yield from self._stop(kept, {part.number}, seen_to=False)
            self._add(kept, {part.number}, kept.restarts)
        else:
            yield from self._start(wanted, kept)

    def _add(
        self, kept: KeptConnector, numbers: Collection[int], asked: Mapping[int, int]
    ) -> bool:
        """Start tasks as they are planned; return whether their connector has not failed."""
        kept.restarts = asked
        planned = kept.planned
        if planned is None:
            return True
        try:
            tasks = [planned.make(n) for n in sorted(numbers) if n in planned.configs]
        except Exception as error:  # noqa: BLE001 - a plugin may have a say in it
            self._fail(kept, error)
            return False
        added = [task.id for task in tasks]
        self._restarts.follow(added, self._policy(kept.connector))
        self.worker.add(tasks, kept.connector.uid)
        kept.running += added
        return True

    def _stop(self, kept: KeptConnector, numbers: set[int], *, seen_to: bool) -> Work[None]:
        """End tasks that come anew; who is ``seen_to`` by hand counts from the first again."""
        ended = [task for task in kept.running if task.number in numbers]
        yield from self._ended(ended, TaskState.RESTARTING)
        if seen_to:
            self._restarts.forget(ended)  # also one that failed on its way to its end
        kept.running = [task for task in kept.running if task.number not in numbers]

    def _end(self, kept: KeptConnector, state: TaskState) -> Work[None]:
        self._restarts.forget(kept.running)
        yield from self._ended(kept.running, state)
        self._restarts.forget(kept.running)  # one that failed on its way to its end
        kept.running = []

    def _ended(self, tasks: Collection[TaskId], state: TaskState) -> Work[None]:
        """Let the worker end tasks, which takes two times the grace at most."""
        if not tasks:
            return
        end = partial(self.worker.end, dict.fromkeys(tasks, state), self.grace)
        ending = self._aside("headrace-end", end)
        while not ending.done():
            yield False
        ending.result()

    def _mark(self, tasks: Iterable[TaskId], state: TaskState, wanted: Connector) -> None:
        for task in tasks:
            self.worker.mark(task, state, wanted.uid)

    def _close(self, kept: KeptConnector) -> Work[None]:
        """Stop a connector; one that hangs is left behind after a while."""
        closing = kept.closing()
        by = time.monotonic() + self._stop_timeout.total_seconds()
        while closing is not None and not closing.done():
            if time.monotonic() > by:
                log.warning("connector did not stop in time", connector=kept.connector.name)
                return
            yield False

    @property
    def _stop_timeout(self) -> timedelta:
        return 2 * self.grace  # as long as tasks have

    @property
    def _restarts(self) -> Restarts:
        return self.worker.restarts

    def _policy(self, wanted: Connector) -> RestartPolicy:
        try:
            return self.policy(wanted)
        except Exception as error:  # noqa: BLE001 - its configuration was checked by another version
            log.warning(
                "restart policy cannot be read; using the default",
                connector=wanted.name,
                why=str(error),
            )
            return RestartPolicy()

    def _fail(self, kept: KeptConnector, error: Exception) -> None:
        """Tell that a connector has failed, and try again where that makes sense."""
        wanted = kept.connector
        kept.failed = True
        log.error("connector failed", connector=wanted.name, why=str(error))
        policy = self._policy(wanted)
        if isinstance(error, RetriableError):
            policy = policy.patient()  # as with its tasks, which wait for a busy system too
        self._restarts.follow([wanted.name], policy)
        verdict = self._restarts.failed(wanted.name, error)
        now = self.clock()
        trace, next_try = traced(self.redact(error), verdict, now)
        status = ConnectorStatus(ConnectorState.FAILED, self.worker.owner, trace, next_try)
        self.store.set_status(wanted, status, now)
        self._show(kept, ConnectorState.FAILED)
        kept.done = True

    def _show(self, kept: KeptConnector, state: ConnectorState) -> None:
        if self.listener is not None:
            tasks = [task.number for task in self.store.tasks(kept.connector.name)]
            self.listener.connector_changed(kept.connector, state, tasks)

    def _tell(self, kept: KeptConnector, state: ConnectorState) -> None:
        kept.failed = False
        status = ConnectorStatus(state, self.worker.owner)
        self.store.set_status(kept.connector, status, self.clock())
        self._show(kept, state)
        kept.done = True
