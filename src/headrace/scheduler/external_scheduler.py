"""External schedulers: their interface, requests to them, and the registrar that syncs them."""

from __future__ import annotations

import re
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import httpx2
import structlog
from typing_extensions import override

from headrace.control import read_job
from headrace.model import RUNNABLE, Backoff, Job, JobState, Registration
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import ConfigError, ConfigErrors, RetriableError
from headrace.sdk.config import Configured, Lambda, Range, Settings, invalid, setting
from headrace.sdk.errors import Category, HeadraceError
from headrace.sdk.loopback import is_own

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.model import Schedule
    from headrace.store import RegistrationStore


log = structlog.get_logger(__name__)


class EngineUnavailableError(RetriableError):
    """The external scheduler does not answer."""

    code: ClassVar[str] = "engine.unavailable"
    category: ClassVar[Category] = Category.ENVIRONMENT


class EngineRefusedError(HeadraceError):
    """The external scheduler rejects the request."""

    code: ClassVar[str] = "engine.refused"
    category: ClassVar[Category] = Category.ENVIRONMENT


class RegistrationPendingError(RetriableError):
    """The external scheduler has not processed the registration yet."""

    code: ClassVar[str] = "engine.pending"
    category: ClassVar[Category] = Category.ENVIRONMENT


def _url(name: str, value: object) -> None:
    if not str(value).startswith(("http://", "https://")):
        raise invalid(name, value, "Must begin with http:// or https://")


def _prefix(name: str, value: object) -> None:
    if not _PREFIX.fullmatch(str(value)):
        raise invalid(
            name, value, "Must be ASCII letters, digits, dots, dashes and underscores"
        )


URL = Lambda(_url, "An address that begins with http:// or https://")
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}")
"""The prefix becomes part of file names."""


class EngineSettings(Settings):
    """Settings of all external schedulers."""

    url: str = setting("The address of the scheduler's REST API.", validator=URL)
    callback_url: str = setting(
        "The address at which the scheduler reaches this server, such as http://headrace:8083.",
        key="callback_url",
        validator=URL,
    )
    prefix: str = setting(
        "The prefix of all names that are created in the scheduler. Each server that uses the "
        "same scheduler needs its own prefix.",
        default="headrace",
        validator=Lambda(_prefix, "ASCII letters, digits, dots, dashes and underscores"),
    )
    timeout: int = setting(
        "The timeout of a request to the scheduler, in seconds.",
        default=10,
        key="timeout_seconds",
        validator=Range(1, 600),
    )


@dataclass(frozen=True, kw_only=True)
class WakeUp:
    """A job to register with an external scheduler.

    Args:
        job: The name of the job.
        schedule: The schedule, which determines when windows are past.
        active: Whether to wake the job; a job that may not run is registered but paused.
        version: Changes with each change of the job.
        path: The path of the request that wakes the job, below ``callback_url``.
        token: The bearer token of that request, valid only for this job.
    """

    job: str
    schedule: Schedule
    active: bool
    version: str
    path: str
    token: str = field(repr=False)


class ScheduleEngine(Configured, ABC):
    """An external scheduler, which wakes jobs by callbacks.

    One thread calls it. All calls are idempotent, also across servers. They raise
    EngineUnavailableError if the scheduler does not answer, EngineRefusedError if it rejects
    the request, and RegistrationPendingError if it has not processed the registration yet.
    """

    settings: EngineSettings

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def check(cls, schedule: Schedule) -> None:
        """Raise ConfigError for a schedule that the scheduler cannot express."""

    def start(self) -> None:
        """Prepare. Called before all other calls, and again until it does not raise."""

    @abstractmethod
    def register(self, wake: WakeUp) -> None:
        """Ensure that a job is registered. A job that was paused there stays paused."""

    @abstractmethod
    def update(self, wake: WakeUp) -> None:
        """Ensure that a job is registered in its current version, and active or paused."""

    @abstractmethod
    def unregister(self, job: str) -> None:
        """Ensure that nothing of a job is left in the scheduler."""

    def stop(self) -> None:
        """Close connections. Registrations stay."""


class MissingEngine(ScheduleEngine):
    """Placeholder for an engine that is not in the settings: every operation raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    @override
    @classmethod
    def check(cls, schedule: Schedule) -> None: ...

    @override
    def register(self, wake: WakeUp) -> None:
        problem = f"The settings of this server have no schedule engine {self._name}."
        fix = f"Add schedule_engines.{self._name}, or set another engine for the job."
        raise ConfigError(problem, fix=fix, field="schedule_engines")

    @override
    def update(self, wake: WakeUp) -> None:
        self.register(wake)

    @override
    def unregister(self, job: str) -> None:
        problem = (
            f"Schedule engine {self._name} still has job {job}, but is not in the settings."
        )
        fix = f"Add schedule_engines.{self._name} again, so that the job is removed there."
        raise ConfigError(problem, fix=fix, field="schedule_engines")


@dataclass
class _Attempts:
    """The attempts to register a job since this server started.

    Args:
        of: The uid, version and state of the job at the last attempt.
        seen: The registration that was confirmed.
    """

    failures: int = 0
    next: float = 0.0
    of: object = None
    seen: Registration | None = None

    def due(self, of: object, now: float) -> bool:
        """Return whether an attempt is due; a changed job is due at once."""
        if of != self.of:
            self.of, self.failures, self.next = of, 0, 0.0
        return self.next <= now


@dataclass(kw_only=True)
class Registrar:
    """Syncs the jobs of one engine from the store.

    A registration is stored before the engine is called, and deleted after the job was removed
    from the engine. So nothing is left behind after a crash, a lost response, or if the engine
    was unavailable when a job was deleted. Everything is checked again when a server starts.

    Args:
        name: The name of the engine in the settings.
        token: Returns the callback token of a job.
        take_on: Called with an approved job once it is registered.
        redact: Removes secrets from an error.
        interval: The longest wait between two checks.
    """

    name: str
    engine: ScheduleEngine
    store: RegistrationStore
    clock: Callable[[], datetime]
    token: Callable[[Job], str]
    take_on: Callable[[Job], None]
    redact: Callable[[Exception], Exception] = lambda error: error
    interval: timedelta = timedelta(seconds=5)
    backoff: Backoff = field(default_factory=Backoff)
    monotonic: Callable[[], float] = time.monotonic
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    _started: bool = False
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False

    def run(self) -> None:
        """Sync repeatedly until ``stop`` is called; blocks."""
        errors = RepeatedErrors(
            "cannot register jobs",
            "jobs are registered again",
            about={"engine": self.name},
        )
        while not self._stopping:
            with errors.logged():
                self.look()
            self._woken.wait(self.interval.total_seconds())
            self._woken.clear()
        self.engine.stop()

    def wake(self) -> None:
        """Sync soon. Thread-safe."""
        self._woken.set()

    def stop(self) -> None:
        """End ``run``. Thread-safe."""
        self._stopping = True
        self._woken.set()

    def look(self) -> None:
        """Sync the engine with the store, as far as possible.

        Raises the last error; all errors are stored with their registrations.
        """
        jobs = {job.name: job for job in self.store.jobs(self.name)}
        known = {row.job: row for row in self.store.of_engine(self.name)}
        todo: dict[str, Callable[[], None]] = {
            name: partial(self._unregister, row)
            for name, row in known.items()
            if name not in jobs
        }
        for name, job in jobs.items():
            if self._is_open(job, known.get(name)):
                todo[name] = partial(self._register, job, known.get(name))
        last: Exception | None = None
        for name, do in todo.items():
            attempts, of = self._attempts.setdefault(name, _Attempts()), None
            if name in jobs:
                of = (jobs[name].uid, jobs[name].version, jobs[name].state)
            if self._stopping or not attempts.due(of, self.monotonic()):
                continue
            try:
                if not self._started:
                    self.engine.start()
                    self._started = True
                do()
            except Exception as error:  # noqa: BLE001 - an error of one job must not affect others
                last = self.redact(error)
                self._failed(name, jobs.get(name), last)
                if isinstance(error, EngineUnavailableError):
                    break  # the other jobs would time out too
            else:
                attempts.failures = 0
        for name in self._attempts.keys() - jobs.keys() - known.keys():
            del self._attempts[name]
        if last is not None:
            raise last

    def _is_open(self, job: Job, row: Registration | None) -> bool:
        """Return whether a job needs a registration or an update."""
        if row is None:
            return job.state in RUNNABLE
        seen = self._attempts.setdefault(job.name, _Attempts()).seen
        return not row.is_of(job) or seen != row or job.state is JobState.APPROVED

    def _register(self, job: Job, row: Registration | None) -> None:
        wanted = self._row(job, registered=True)
        wake = self._wake_up(job, active=wanted.active)
        if row is not None and row.is_of(job):
            self.engine.register(wake)
            wanted = replace(row, error=None)
        else:
            if row is None or row.registered:
                self.store.put(replace(wanted, registered=False))
            self.engine.update(wake)
        if wanted != row:
            self.store.put(wanted)
        self._attempts[job.name].seen = wanted
        if job.state is JobState.APPROVED:
            self.take_on(job)

    def _wake_up(self, job: Job, *, active: bool) -> WakeUp:
        try:
            schedule = read_job(job.document).schedule
        except ConfigErrors as errors:  # written by another version
            problem = f"The job's document cannot be parsed: {errors.problem}"
            raise EngineRefusedError(problem) from None
        if schedule is None:
            problem = "The job has no schedule of its own."
            raise ConfigError(problem, fix="Remove schedule.engine.", field="schedule.engine")
        return WakeUp(
            job=job.name,
            schedule=schedule,
            active=active,
            version=f"{job.uid}-{job.version}",
            path=callback_path(job.name),
            token=self.token(job),
        )

    def _unregister(self, row: Registration) -> None:
        if row.registered or row.active:  # show that the removal is pending
            self.store.put(replace(row, registered=False, active=False, changed=self.clock()))
        self.engine.unregister(row.job)
        self.store.forget(row)
        log.info("job unregistered", engine=self.name, job=row.job)

    def _failed(self, name: str, job: Job | None, error: Exception) -> None:
        attempts = self._attempts[name]
        attempts.failures += 1
        wait = self.backoff.wait(attempts.failures)
        attempts.next = self.monotonic() + wait.total_seconds()
        found = self.store.of_job(self.name, name)
        if found is None and job is not None:
            found = self._row(job, registered=False)
        if found is not None and found.error != str(error):
            self.store.put(replace(found, error=str(error), changed=self.clock()))

    def _row(self, job: Job, *, registered: bool) -> Registration:
        return Registration(
            engine=self.name,
            job=job.name,
            uid=job.uid,
            version=job.version,
            active=job.state in RUNNABLE,
            registered=registered,
            changed=self.clock(),
        )


def callback_path(job: str) -> str:
    """Return the path of the request that wakes a job."""
    return f"/v1/jobs/{quote(job, safe='')}/callback"


_SHOWN = 500
"""The maximum number of characters of a response in an error."""
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class HttpEngine(ScheduleEngine):
    """An external scheduler with a REST API. The paths of requests are appended to its URL."""

    _client: httpx2.Client | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        accepted: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> httpx2.Response:
        """Return the response if it is a success or has an accepted status.

        Raises EngineUnavailableError if there is no response or the server is busy, and
        EngineRefusedError for any other status. The errors do not contain the request's data.
        """
        client = self._client = self._client or self._open()
        try:
            answer = client.request(method, path, headers=dict(headers or {}), **request)
        except httpx2.TransportError as error:
            # Without the error's text: protocol errors contain headers, and so secrets.
            problem = f"{self.settings.url} does not answer ({type(error).__name__})."
            raise EngineUnavailableError(problem, fix="Start it, or correct url.") from None
        if answer.status_code in _BUSY:
            problem = f"{self.settings.url} is busy (HTTP {answer.status_code})."
            raise EngineUnavailableError(problem, fix="Wait: the request is retried.")
        if not answer.is_success and answer.status_code not in accepted:
            problem = f"{method} {path} returned HTTP {answer.status_code}{_detail(answer)}."
            raise EngineRefusedError(problem, fix=f"See the log of {self.settings.url}.")
        return answer

    def _open(self) -> httpx2.Client:
        host = httpx2.URL(self.settings.url).host
        return httpx2.Client(
            base_url=self.settings.url.rstrip("/"),
            timeout=self.settings.timeout,
            verify=ssl.create_default_context(),
            # Do not use a proxy from the environment for this machine itself.
            trust_env=not is_own(host),
        )

    @override
    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def json_of(answer: httpx2.Response) -> Any:
    """Return the JSON value of a response. Raises EngineRefusedError if it is not JSON."""
    try:
        return answer.json()
    except ValueError:
        problem = f"{answer.request.url.copy_with(query=None)} did not return JSON."
        fix = "Set url to the address of the REST API."
        raise EngineRefusedError(problem, fix=fix) from None


def _detail(answer: httpx2.Response) -> str:
    """Return the server's error text, unless it is a list, which may contain request data.

    FastAPI returns such lists.
    """
    try:
        said = answer.json()
    except ValueError:
        return ""
    detail = said.get("detail") if isinstance(said, dict) else None
    return f": {detail[:_SHOWN].rstrip('.')}" if isinstance(detail, str) else ""
