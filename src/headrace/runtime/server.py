"""A server in one process: the exclusive lock of its store, its worker and its plans."""

from __future__ import annotations

import fcntl
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import structlog

from headrace.control import OpenPlan, TaskPlan, definition_of, parse_common, secrets_of
from headrace.model import Connector, RestartPolicy
from headrace.permissions import make_private_home
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import StateError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.sink import class_name
from headrace.store import ServerPlaces, StoreUnavailableError
from headrace.worker import Owner, Planned, Reconciler, StoredConnectorContext, Worker, living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.capture import HostSupervisor
    from headrace.plugins import Registry
    from headrace.runtime.tasks import Planner, TaskMaker
    from headrace.settings import Settings


log = structlog.get_logger(__name__)

_LOOK_SECONDS = 3.0
"""How often a sink with a topic pattern looks for new topics."""
_END_SECONDS = 30.0
"""The timeout at the end for everything but plugins: mainly the last writes to the store."""
_GRACES = 6
"""How many grace periods a task and its connector may take to end, in all."""


@contextmanager
def only_server(home: Path) -> Iterator[None]:
    """Lock a home folder against other servers, until this context or the process ends.

    Raises StateError if a server runs: two would consider each other's tasks lost.
    """
    make_private_home(home)
    with (home / "server.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"Another server runs with the home folder {home}."
            fix = "Stop it, or use another folder for this server with --home."
            raise StateError(problem, field="home", fix=fix) from None
        yield


@contextmanager
def at_rest(settings: Settings) -> Iterator[None]:
    """Lock a store against servers and runs inside this context.

    Raises StateError if one is running.
    """
    with only_server(settings.home):
        running = living(settings.home / "workers")
        if running:
            problem = (
                f"A process is running with the home folder {settings.home}: {running[0]}."
            )
            raise StateError(problem, field="home", fix="Stop it first.")
        place = settings.store_place
        if not isinstance(place, str):
            yield
            return
        with Owner(settings.home / "workers") as owner, closing(ServerPlaces(place)) as places:
            places.take(owner.name, settings.lease, owner.is_dead)
            try:
                yield
            finally:
                places.leave(owner.name)


@contextmanager
def only_in_store(
    settings: Settings, owner: Owner, lost: Callable[[], None]
) -> Iterator[str | None]:
    """Lock a shared store against other servers on any machine.

    Yields the former owner of the store that has died, if any. ``lost`` is called when another
    server has taken the store because this server's lease has expired.

    Raises:
        StateError: Another server has the lock.
    """
    place = settings.store_place
    if not isinstance(place, str):
        yield None  # its file is in the home folder, which has its own lock
        return
    ended = threading.Event()
    with closing(ServerPlaces(place)) as places:
        former = places.take(owner.name, settings.lease, owner.is_dead)

        errors = RepeatedErrors("store lease cannot be renewed", "store lease renewed again")

        def keep() -> None:
            while not ended.wait(settings.lease.total_seconds() / 3):
                with errors.logged():
                    try:
                        places.keep(owner.name, settings.lease)
                    except StaleEpochError as error:
                        # Guarantee 3: all further writes of our tasks are rejected, so stop.
                        log.error("store taken over by another server", why=str(error))  # noqa: TRY400 - the trace is of no use
                        lost()
                        return

        thread = threading.Thread(target=keep, name="headrace-place", daemon=True)
        thread.start()
        try:
            yield former
        finally:
            ended.set()
            thread.join()
            with suppress(StoreUnavailableError):
                places.leave(owner.name)


@dataclass(kw_only=True)
class Standalone:
    """A server's threads, except for its HTTP servers. A context manager, which ends them."""

    worker: Worker
    reconciler: Reconciler
    hosts: HostSupervisor
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        work = {"worker": self.worker.run, "reconciler": self.reconciler.run}
        for name, run in work.items():
            thread = threading.Thread(target=run, name=f"headrace-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop: running batches finish, or are cancelled after a grace period.

        A thread in which a plugin hangs is abandoned after a few grace periods.
        """
        self.reconciler.stop()
        self.hosts.drain()
        self.worker.stop(self.reconciler.grace)
        by = time.monotonic() + _END_SECONDS + _GRACES * self.reconciler.grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, by - time.monotonic()))
            if thread.is_alive():
                log.warning("thread did not end and is abandoned", thread=thread.name)
        self.hosts.close()


@dataclass
class ServedPlan:
    """A connector on a server, which plans its tasks. Not thread-safe.

    A sink with ``topics.regex`` polls for new topics.
    """

    connector: Connector
    open: OpenPlan
    planner: Planner
    maker: TaskMaker
    clock: Callable[[], float] = time.monotonic
    _topics: frozenset[str] = frozenset()
    _look: float = 0.0

    def plan(self) -> Planned:
        plans = {
            plan.id.number: replace(plan, identity=self.connector.uid)
            for plan in self.planner.open_plans(self.open)
        }
        topics = {plan.to_topic or plan.from_topic for plan in plans.values()}
        own = f"{self.open.definition.name}.capture"  # between a capture and the chain
        self._topics = frozenset(plan.from_topic or "" for plan in plans.values())
        self._look = self.clock() + _LOOK_SECONDS
        return Planned(
            {number: self._shown(plan) for number, plan in plans.items()},
            lambda number: self.maker.task(plans[number]),
            frozenset(topic for topic in topics if topic not in {None, own}),
        )

    def _shown(self, plan: TaskPlan) -> dict[str, str]:
        """Return a task's configuration as it is stored and shown.

        Guarantee 6: references in the connector's configuration stay references.
        """
        references, config = self.planner.registry.references, self.connector.config

        def shown(key: str, value: str) -> str:
            own = config.get(key, "")
            if own == value or references.has_any(own):
                return own
            return references.secrets.redacted(value)

        return {key: shown(key, value) for key, value in _config(plan).items()}

    def changed(self) -> bool:
        definition = self.open.definition
        if definition.source is not None or definition.topics or self.clock() < self._look:
            return False
        self._look = self.clock() + _LOOK_SECONDS
        return self._topics != frozenset(self.open.topics())

    def close(self) -> None:
        self.open.close()


def open_served(
    connector: Connector,
    planner: Planner,
    maker: TaskMaker,
    ask: Callable[[str, Exception | None], None],
) -> ServedPlan:
    """Return a connector that plans its tasks. Raises errors in its configuration.

    ``ask`` is called with the connector's name when it requests a reconfiguration, and with
    an error when it has failed.
    """
    name = connector.name
    context = StoredConnectorContext(
        planner.store,
        name,
        lambda: ask(name, None),
        lambda error: ask(name, error),
        connector.uid,
    )
    registry = planner.registry
    registry.references.secrets.remember(secrets_of(connector.config, registry))
    definition = definition_of(connector, registry)
    return ServedPlan(connector, planner.open(definition, context), planner, maker)


def restart_policy(
    connector: Connector, registry: Registry, settings: Settings
) -> RestartPolicy:
    """Return the restart policy of a connector and its tasks. Raises ConfigErrors."""
    default = RestartPolicy(
        enabled=settings.restart_failed,
        first=settings.restart_delay,
        longest=settings.restart_delay_max,
        attempts=None if settings.restart_attempts < 0 else settings.restart_attempts,
        quiet=settings.restart_quiet,
    )
    definition = definition_of(connector, registry)
    common = registry.references.resolved(definition.common)
    return parse_common(replace(definition, common=common)).restarts.over(default)


def _config(plan: TaskPlan) -> dict[str, str]:
    if plan.source is not None:
        return {"task.class": class_name(plan.source.connector), **plan.source.config}
    shown = {} if plan.from_topic is None else {"topics": plan.from_topic}
    for sink in plan.sinks:
        shown |= {"task.class": class_name(sink.connector), **sink.config}
    return shown
