"""Sends alerts, with one thread per channel."""

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
"""Creates a configured channel. Raises ConfigError."""

_PATIENCE_SECONDS = 2.0
"""How long to wait at the end for alerts that are being sent."""
_STORE_WAIT = 1.0
"""Seconds between two attempts to store that an alert was sent."""
_DOUBLINGS = 20
"""Enough to reach any ``longest_wait`` without an overflow of timedelta."""


@dataclass(frozen=True, kw_only=True)
class SendResult:
    """The result of sending an alert by a channel; ``error`` is None if it was accepted."""

    channel: str
    error: str | None = None


@dataclass(kw_only=True)
class AlertSender:
    """Sends the due alerts of a store.

    If several servers share the store, the one that claims an alert's row for ``lease`` sends
    it. An alert is sent twice only if that server dies before it has stored that the alert was
    sent, or if a channel takes longer than ``lease``. A failed channel is retried after
    ``first_wait``, which doubles up to ``longest_wait``, until the alert is ``give_up_after``
    old. A channel that hangs delays only its own alerts.

    Args:
        owner: The name of this process, unique among living workers.
        is_dead: Returns whether an owner is known to have ended.
        clock: Returns the time of day.
        lease_clock: Returns the time by which leases expire, see ``Store.now``.
        channels: Opens each channel, by name.
        failed: Called with the name of a channel that did not accept an alert.
        redact: Removes secrets from an error.
        interval: The longest wait between two polls for due alerts.
        kept: How long alerts are kept after they were sent or given up.
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
    """Open channels; only the channel's own thread uses each."""

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send alerts while the context is open. Channels that hang at exit are abandoned."""
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
        """Send due alerts; return when they are sent or have failed, or after ``within``."""
        until = time.monotonic() + within.total_seconds()
        if not self.store.has_waiting(self.channels, self.clock()):
            return  # without importing any channel
        with self.sending():
            while self.store.has_waiting(self.channels, self.clock()):
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)

    def clean(self) -> None:
        """Give up alerts that are too old and delete old ones. Called periodically."""
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
        """Send an alert by every channel now, ahead of the queue; return the results."""
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
            return SendResult(channel=name, error="The channel does not respond.")
        if not isinstance(error, Exception):
            return SendResult(channel=name)
        return SendResult(channel=name, error=trace_of(self.redact(error)))

    def _run(self, name: str) -> None:
        """Send the due alerts of a channel until the end, on the channel's thread."""
        errors = RepeatedErrors("cannot check for due alerts", "due alerts are checked again")
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
            self._close(name)  # so that the next attempt reads secrets that have changed
            wait = self._wait(claimed.attempts, error)
            why = trace_of(self.redact(error))
            about = {"alert": claimed.alert.id, "channel": name, "why": why}
            log.warning("alert not sent", **about, again_in=str(wait))
            self.failed(name)
            self._write(lambda: self.store.failed(claimed, self.clock() + wait, why))
        else:
            self._write(lambda: self.store.sent(claimed, self.clock()))

    def _wait(self, attempt: int, error: Exception) -> timedelta:
        """Return the wait after a failed attempt; the first is number 1."""
        wait: timedelta = self.first_wait * 2 ** min(attempt - 1, _DOUBLINGS)
        wait = min(wait, self.longest_wait)
        asked = error.after if isinstance(error, RetriableError) else None
        return max(wait, min(asked or timedelta(), self.give_up_after))

    def _write(self, write: Callable[[], bool]) -> None:
        """Store how an attempt has ended, retrying until the store answers."""
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
        log.warning("cannot close alert channel", channel=name, why=str(error))
