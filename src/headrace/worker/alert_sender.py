"""Sends alerts, each channel by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import Alert, AlertChannel, RetriableError
from headrace.store import StoreUnavailableError
from headrace.worker.events import as_it_is, trace_of

if TYPE_CHECKING:
    from headrace.store import AlertStore, Delivery

log = structlog.get_logger(__name__)

OpenChannel: TypeAlias = Callable[[], AlertChannel]
"""Makes a channel that is configured. Raises ConfigError."""

_PATIENCE_SECONDS = 2.0
"""How long the end waits for what is being sent."""
_STORE_WAIT = 1.0
"""Seconds between two tries to store that an alert was sent."""
_DOUBLINGS = 20
"""Enough for any ``longest_wait``, and few enough for a timedelta."""


@dataclass(frozen=True, kw_only=True)
class SendResult:
    """Whether a channel took an alert; ``error`` says why not."""

    channel: str
    error: str | None = None


@dataclass(kw_only=True)
class AlertSender:
    """Sends the alerts of a store that are due.

    Of several servers one sends an alert: it claims the row for ``lease``. It comes twice only
    where that one dies before it has stored that the alert was sent, or a channel takes longer
    than ``lease``. A channel that fails is tried again after ``first_wait``, which doubles up
    to ``longest_wait``, until the alert is ``give_up_after`` old. One that hangs holds up its
    own alerts only.

    Args:
        owner: The name of this process, unique among living workers.
        is_dead: Says of an owner whether it is known to have ended.
        clock: Gives the time of day.
        lease_clock: Gives the time by which leases expire, see ``Store.now``.
        channels: How each channel is opened, by name.
        failed: Called with the name of a channel that did not take an alert.
        redact: Takes secrets out of an error.
        interval: The longest wait between two looks at what is due.
        kept: How long alerts are kept that were sent or given up.
    """

    store: AlertStore
    owner: str
    is_dead: Callable[[str], bool]
    clock: Callable[[], datetime]
    lease_clock: Callable[[], datetime]
    channels: Mapping[str, OpenChannel]
    failed: Callable[[str], None] = lambda _: None
    redact: Callable[[Exception], Exception] = as_it_is
    lease: timedelta = timedelta(minutes=5)
    interval: timedelta = timedelta(seconds=1)
    first_wait: timedelta = timedelta(seconds=5)
    longest_wait: timedelta = timedelta(minutes=15)
    give_up_after: timedelta = timedelta(days=1)
    kept: timedelta = timedelta(days=90)
    _over: threading.Event = field(default_factory=threading.Event)
    _open: dict[str, AlertChannel] = field(default_factory=dict)
    """Each is of the thread of its channel alone."""

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send for as long as this lasts. What hangs then is left to itself."""
        threads = [
            threading.Thread(
                target=self._run, args=(name,), name=f"headrace-alerts-{name}", daemon=True
            )
            for name in self.channels
        ]
        self._over.clear()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            until = time.monotonic() + _PATIENCE_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def drain(self, within: timedelta) -> None:
        """Send what is due, and return once it is sent or has failed, or after that time."""
        until = time.monotonic() + within.total_seconds()
        if not self.store.has_waiting(self.channels, self.clock()):
            return  # and nothing is imported for it
        with self.sending():
            while self.store.has_waiting(self.channels, self.clock()):
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)

    def clean(self) -> None:
        """Give up what is too old, and forget what is past. Called now and then."""
        now = self.clock()
        given = self.store.give_up(now - self.give_up_after, now, self.lease_clock())
        for each in given:
            log.error(
                "alert given up: it could not be sent",
                alert=each.alert.id,
                channel=each.channel,
                subject=each.alert.subject,
                attempts=each.attempts,
                why=each.error,
            )
        self.store.prune(now - self.kept)

    def try_all(self, alert: Alert, within: timedelta) -> list[SendResult]:
        """Send an alert by every channel now, whatever waits; return what became of it."""
        pending = {name: Future[None]() for name in self.channels}
        for name, future in pending.items():
            thread = threading.Thread(target=self._try, args=(name, alert, future), daemon=True)
            thread.start()
        until = time.monotonic() + within.total_seconds()
        return [self._result(name, future, until) for name, future in pending.items()]

    def _try(self, name: str, alert: Alert, future: Future[None]) -> None:
        try:
            channel = self.channels[name]()
            try:
                channel.send(alert)
            finally:
                _close(name, channel)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            future.set_exception(error)
        else:
            future.set_result(None)

    def _result(self, name: str, future: Future[None], until: float) -> SendResult:
        try:
            error = future.exception(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return SendResult(channel=name, error="It does not respond.")
        if not isinstance(error, Exception):
            return SendResult(channel=name)
        return SendResult(channel=name, error=trace_of(self.redact(error)))

    def _run(self, name: str) -> None:
        """Send what is due of a channel until the end; its thread's."""
        errors = RepeatedErrors("alerts cannot be looked at", "alerts are looked at again")
        while not self._over.is_set():
            with errors.logged():
                while not self._over.is_set() and (claimed := self._claim(name)) is not None:
                    self._send(name, claimed)
            self._over.wait(self.interval.total_seconds())
        self._close(name)

    def _claim(self, name: str) -> Delivery | None:
        lease_now = self.lease_clock()
        return self.store.claim(
            name,
            self.owner,
            self.clock(),
            lease_now=lease_now,
            expires=lease_now + self.lease,
            dead=self._is_gone,
        )

    def _is_gone(self, owner: str) -> bool:
        return owner != self.owner and self.is_dead(owner)

    def _send(self, name: str, claimed: Delivery) -> None:
        try:
            if name not in self._open:
                self._open[name] = self.channels[name]()
            self._open[name].send(claimed.alert)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            self._close(name)  # so that a secret that has changed is read anew
            wait = self._wait(claimed.attempts, error)
            why = trace_of(self.redact(error))
            about = {"alert": claimed.alert.id, "channel": name, "why": why}
            log.warning("alert not sent", **about, again_in=str(wait))
            self.failed(name)
            self._write(lambda: self.store.failed(claimed, self.clock() + wait, why))
        else:
            self._write(lambda: self.store.sent(claimed, self.clock()))

    def _wait(self, attempt: int, error: Exception) -> timedelta:
        """Return the wait after an attempt, from 1, that has failed."""
        wait: timedelta = self.first_wait * 2 ** min(attempt - 1, _DOUBLINGS)
        wait = min(wait, self.longest_wait)
        asked = error.after if isinstance(error, RetriableError) else None
        return max(wait, min(asked or timedelta(), self.give_up_after))

    def _write(self, write: Callable[[], bool]) -> None:
        """Write down how an attempt has ended, as soon as the store answers."""
        while True:
            try:
                write()
            except StoreUnavailableError:
                if self._over.wait(_STORE_WAIT):
                    raise
            else:
                return

    def _close(self, name: str) -> None:
        plugin = self._open.pop(name, None)
        if plugin is not None:
            _close(name, plugin)


def _close(name: str, plugin: AlertChannel) -> None:
    try:
        plugin.close()
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        log.warning("a channel of alerts cannot be closed", channel=name, why=str(error))
