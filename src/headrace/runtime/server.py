"""A server in one process: the only one of its store, with its worker and its plans."""

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
"""How often a sink of a pattern looks for new topics."""
_END_SECONDS = 30.0
"""How long all that asks no plugin may take at the end: what is stored last, above all."""
_GRACES = 6
"""How many grace periods a task and its connector may take, each for itself, to end."""


@contextmanager
def only_server(home: Path) -> Iterator[None]:
    """Keep other servers from a home folder for as long as this lasts, or the process lives.

    Raises StateError while there is one: two would take each other's tasks for lost.
    """
    make_private_home(home)
    with (home / "server.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"Another server runs with the home folder {home}."
            fix = "Stop it, or use another folder for this one with --home."
            raise StateError(problem, field="home", fix=fix) from None
        yield


@contextmanager
def at_rest(settings: Settings) -> Iterator[None]:
    """Keep servers and runs from a store for as long as this lasts.

    Raises StateError while one runs.
    """
    with only_server(settings.home):
        running = living(settings.home / "workers")
        if running:
            problem = f"A process runs with the home folder {settings.home}: {running[0]}."
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
    """Keep other servers, on whatever machine, from a store that several share.

    Gives the owner that had the store before and is gone, if there was one. ``lost`` is called
    when another server has taken the store, as this one was not heard of for too long.

    Raises:
        StateError: Another server has it.
    """
    place = settings.store_place
    if not isinstance(place, str):
        yield None  # its file is in the home folder, which is kept by itself
        return
    ended = threading.Event()
    with closing(ServerPlaces(place)) as places:
        former = places.take(owner.name, settings.lease, owner.is_dead)

        errors = RepeatedErrors("the store cannot be kept now", "the store is kept again")

        def keep() -> None:
            while not ended.wait(settings.lease.total_seconds() / 3):
                with errors.logged():
                    try:
                        places.keep(owner.name, settings.lease)
                    except StaleEpochError as error:
                        # Guarantee 3: what our tasks still write is refused; there is no
                        # use in going on.
                        log.error("the store is lost to another server", why=str(error))  # noqa: TRY400 - no trace is of use
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
    """What a server runs beside its doors. Use it in a ``with``, which ends it."""

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
        """Stop: what is moving is finished, or cancelled after a grace period.

        A thread in which a plugin hangs is left behind: all that waits for one takes a few
        grace periods at most.
        """
        self.reconciler.stop()
        self.hosts.drain()
        self.worker.stop(self.reconciler.grace)
        by = time.monotonic() + _END_SECONDS + _GRACES * self.reconciler.grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, by - time.monotonic()))
            if thread.is_alive():
                log.warning("a thread did not end and is left behind", thread=thread.name)
        self.hosts.close()


@dataclass
class ServedPlan:
    """A connector on a server, which plans its tasks. One thread at a time uses it.

    A sink of ``topics.regex`` looks for new topics now and then.
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

        Guarantee 6: what its connector was given as a reference is one there too.
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
    """Return a connector that plans its tasks. Raises what is wrong with its configuration.

    ``ask`` takes a connector's name when it wants to plan again, or why it has failed.
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
    """Return when what fails of a connector is started again. Raises ConfigErrors."""
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
        return {"task.class": _class(plan.source.connector), **plan.source.config}
    shown = {} if plan.from_topic is None else {"topics": plan.from_topic}
    for sink in plan.sinks:
        shown |= {"task.class": _class(sink.connector), **sink.config}
    return shown


def _class(plugin: type) -> str:
    return f"{plugin.__module__}.{plugin.__qualname__}"
