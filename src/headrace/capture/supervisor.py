"""Keeps the plugin hosts running: one process for each plugin environment."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import structlog

from headrace.capture.process import HostProcess, Message, refusal
from headrace.model import Backoff
from headrace.sdk import HeadraceError
from headrace.sdk.errors import SetupError, StaleEpochError

log = structlog.get_logger(__name__)

_GRACE = timedelta(seconds=2)
_ANSWER_SECONDS = 2.0
_TRIES = 3
"""The maximum restarts of a host that dies before it can serve."""
_STEADY = 60.0
"""Seconds of running after which a host's death counts as a first failure."""


class Capture(Protocol):
    """A capture in a host. The supervisor's threads call it."""

    @property
    def python(self) -> str:
        """Return the interpreter of the plugin's environment."""

    def launch(self) -> Message | None:
        """Return the message that starts it in a new host; None if it should not run."""

    def receive(self, message: Message) -> Message | None:
        """Handle a message of the host; return the answer if it is a call."""

    def fail(self, error: HeadraceError) -> None:
        """Mark the capture as failed: it cannot run."""

    def ask_to_stop(self) -> None:
        """Stop soon."""


@dataclass
class _Environment:
    """One interpreter, its running process if any, and its captures."""

    python: str
    captures: list[Capture] = field(default_factory=list)
    names: dict[str, Capture] = field(default_factory=dict)
    process: HostProcess | None = None
    failures: int = 0
    stillborn: int = 0
    began: float = 0.0
    hung: bool = False


class HostSupervisor:
    """Starts hosts when captures need them, and restarts them when they die. Thread-safe.

    Args:
        variables: The hosts' environment variables; None for this process's own.
        backoff: The backoff before a host that died is restarted.
    """

    def __init__(
        self, *, variables: Mapping[str, str] | None = None, backoff: Backoff | None = None
    ) -> None:
        self._variables = variables
        self._backoff = backoff or Backoff(longest=timedelta(seconds=30))
        self._environments: dict[str, _Environment] = {}
        self._lock = threading.RLock()
        self._closing = threading.Event()

    def attach(self, task: Capture) -> None:
        """Run a capture; start its host if there is none yet."""
        with self._lock:
            if self._closing.is_set():
                raise StaleEpochError(problem="This process is stopping.")
            environment = self._environments.setdefault(task.python, _Environment(task.python))
            environment.captures.append(task)
            if environment.process is not None:
                self._launch(environment, task)
            elif not environment.failures:  # otherwise a restart is pending
                self._run(environment)

    def detach(self, task: Capture, *, hung: bool) -> None:
        """Remove a capture. A host without captures is killed if one of them was ``hung``."""
        with self._lock:
            environment = self._environments.get(task.python)
            if environment is None or task not in environment.captures:
                return
            environment.captures.remove(task)
            environment.names = {n: t for n, t in environment.names.items() if t is not task}
            environment.hung |= hung
            process = environment.process
            if process is None or environment.captures or not environment.hung:
                return
            environment.process = None
            environment.hung = False
            environment.failures = environment.stillborn = 0  # no restart of it is pending
        process.kill()

    def send(self, task: Capture, message: Message) -> bool:
        """Send a message to the host of a capture; return whether there is one."""
        with self._lock:
            environment = self._environments.get(task.python)
            process = environment.process if environment else None
        if process is not None:
            process.send(message)
        return process is not None

    def drain(self) -> None:
        """Request the stop of all captures at once."""
        with self._lock:
            tasks = [t for e in self._environments.values() for t in e.captures]
        for task in tasks:
            task.ask_to_stop()

    def close(self) -> None:
        """End all hosts, and wait for them."""
        self._closing.set()
        with self._lock:
            processes = [e.process for e in self._environments.values() if e.process]
            self._environments.clear()
        for process in processes:
            process.close(_GRACE)

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the running hosts."""
        with self._lock:
            return [e.process.pid for e in self._environments.values() if e.process]

    @property
    def down(self) -> list[str]:
        """Return the interpreters of hosts that should be running and are not."""
        with self._lock:
            environments = self._environments.values()
            return [e.python for e in environments if e.captures and e.process is None]

    def silent(self) -> list[int]:
        """Return the process ids of the hosts that serve and do not respond. Blocks."""
        with self._lock:
            processes = [e.process for e in self._environments.values() if e.process]
        end = time.monotonic() + _ANSWER_SECONDS
        for each in processes:
            each.ask()
        return [each.pid for each in processes if not each.answers(end - time.monotonic())]

    def _run(self, environment: _Environment) -> None:
        """Start the environment's process and its captures. The caller holds the lock."""
        environment.names = {}
        try:
            environment.process = HostProcess(
                environment.python,
                variables=self._variables,
                receive=lambda process, message: self._receive(environment, process, message),
                gone=lambda process: self._gone(environment, process),
            )
        except OSError as error:
            raise _unusable(environment.python, str(error)) from error
        environment.began = time.monotonic()
        for task in list(environment.captures):
            self._launch(environment, task)

    def _launch(self, environment: _Environment, task: Capture) -> None:
        process, start = environment.process, task.launch()
        if process is not None and start is not None:
            environment.names[start["capture"]] = task
            process.send(start)

    def _receive(
        self, environment: _Environment, process: HostProcess, message: Message
    ) -> None:
        # An abandoned host may still send calls; its captures are no longer known by name.
        task = environment.names.get(message["capture"])
        if task is not None:
            answer = task.receive(message)
        elif message["type"] == "call":
            # Guarantee 3: an abandoned capture that is still running must not change anything.
            answer = refusal(message, StaleEpochError("The capture was stopped."))
        else:
            answer = None
            if message["type"] == "log":
                say = getattr(log, message["level"], log.info)
                say(message["text"], logger=message["logger"], python=environment.python)
        if answer is not None:
            process.send(answer)

    def _gone(self, environment: _Environment, process: HostProcess) -> None:
        """Restart the environment after the backoff, unless we ended its process."""
        with self._lock:
            if environment.process is not process or self._closing.is_set():
                return
            environment.process = None
            environment.stillborn = 0 if process.ready else environment.stillborn + 1
            if environment.stillborn > _TRIES:
                self._give_up(environment, process.last_words)
                return
            steady = time.monotonic() - environment.began > _STEADY
            environment.failures = 1 if steady else environment.failures + 1
            wait = self._backoff.wait(environment.failures)
        log.warning(
            "plugin host died", python=environment.python, host=process.pid, wait=str(wait)
        )
        if self._closing.wait(wait.total_seconds()):
            return
        with self._lock:
            if self._closing.is_set():
                return
            if not environment.captures:
                environment.failures = 0
                return
            try:
                self._run(environment)
            except SetupError as error:
                self._give_up(environment, error.problem)

    def _give_up(self, environment: _Environment, why: str) -> None:
        """Fail the captures of an environment in which no host can run."""
        environment.failures = environment.stillborn = 0
        for task in environment.captures:
            task.fail(_unusable(environment.python, why))


def _unusable(python: str, why: str) -> SetupError:
    problem = f"The plugin host with {python} does not start: {why}"
    return SetupError(problem, fix="Rebuild the plugin's environment.")
