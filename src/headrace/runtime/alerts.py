"""The alerts of a process: the channels of the settings, the rules and the sender."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from headrace.control import AlertRules, errors_at, trial_alert, unknown_keys
from headrace.repeated_errors import RepeatedErrors
from headrace.runtime.plugins import open_registry
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import ConfigType
from headrace.store import AlertStore
from headrace.worker import AlertSender, SendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.metrics import WorkerMetrics
    from headrace.plugins import Registry, Secrets
    from headrace.sdk import AlertChannel
    from headrace.settings import Settings
    from headrace.store import JobStore, StoredAlert
    from headrace.worker import Owner

_LOG_ONLY: Mapping[str, Mapping[str, str]] = {"log": {"type": "log"}}
"""The channels if none is configured."""
_LOOK_SECONDS = 10.0
"""The interval of the search for late runs."""
_TRY = timedelta(seconds=25)
"""The timeout of a test of all channels: clients wait for 30 seconds."""
_DRAIN = timedelta(seconds=20)
"""How long a command waits at its end for its alerts to be sent."""


@dataclass(frozen=True, kw_only=True)
class ChannelResult(SendResult):
    """The result of a test of a channel, and the channel's type."""

    type: str


@dataclass(kw_only=True)
class Alerting:
    """Creates and sends the alerts of an installation. Thread-safe.

    Args:
        lease_clock: The clock of leases, see ``Store.now``.
        book: Counts created alerts and failed deliveries.
    """

    settings: Settings
    secrets: Secrets
    jobs: JobStore
    owner: Callable[[], Owner]
    clock: Callable[[], datetime]
    lease_clock: Callable[[], datetime]
    book: Callable[[], WorkerMetrics]
    _over: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def store(self) -> AlertStore:
        return AlertStore(self.jobs.database)

    @cached_property
    def rules(self) -> AlertRules:
        return AlertRules(
            jobs=self.jobs,
            alerts=self.store,
            channels=list(self.configured),
            clock=self.clock,
            made=lambda kind: self.book().alert_made(kind),
        )

    @property
    def configured(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of each channel, by name."""
        return self.settings.alerts or _LOG_ONLY

    @cached_property
    def registry(self) -> Registry:
        """The plugins with the access of the settings' author, not that of API clients."""
        return open_registry(self.settings, self.secrets, serving=False)

    @cached_property
    def sender(self) -> AlertSender:
        """Return the sender of alerts.

        Raises PluginNotFoundError and ConfigErrors for invalid settings.
        """
        self.check()
        return self._new_sender()

    def _new_sender(self) -> AlertSender:
        owner = self.owner()
        return AlertSender(
            store=self.store,
            owner=owner.name,
            is_dead=owner.is_dead,
            clock=self.clock,
            lease_clock=self.lease_clock,
            channels={name: partial(self._opened, name) for name in self.configured},
            failed=lambda channel: self.book().alert_failed(channel),
            redact=self.secrets.redacted_error,
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Detect late runs, and send alerts, inside this context.

        Raises ConfigErrors for invalid settings.
        """
        sender = self.sender
        thread = threading.Thread(target=self._watch, name="headrace-alerts", daemon=True)
        self._over.clear()
        with sender.sending():
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join(_LOOK_SECONDS)

    def _watch(self) -> None:
        errors = RepeatedErrors("detection of late runs failed", "detection of late runs works")
        while not self._over.is_set():
            with errors.logged():
                self.rules.look_for_late()
                self.sender.clean()
            self._over.wait(_LOOK_SECONDS)

    def drain(self) -> None:
        """Send due alerts at the end of a command; other processes send the rest."""
        self.rules.look_for_late()
        self.sender.drain(_DRAIN)

    def alerts(
        self, job: str | None, *, before: int | None = None, limit: int = 100
    ) -> Sequence[StoredAlert]:
        """Return alerts, newest first, before a number; also of a deleted job."""
        return self.store.alerts(job, before=before, limit=limit)

    def test(self, by: str) -> list[ChannelResult]:
        """Send a test alert through each channel, and return the results. Blocks up to 25 s."""
        alert = trial_alert(self.clock(), by)
        return [
            ChannelResult(
                channel=each.channel,
                error=each.error,
                type=str(self.configured[each.channel].get("type", "")),
            )
            for each in self._new_sender().try_all(alert, _TRY)
        ]

    def check(self) -> None:
        """Raise PluginNotFoundError or ConfigErrors for invalid settings.

        References are not resolved: a channel with references is only checked for its keys.
        """
        errors: list[ConfigError] = []
        for name, keys in self.settings.alerts.items():
            try:
                self._check_channel(name, keys)
            except ConfigErrors as several:
                errors += several.errors
            except ConfigError as error:
                errors.append(error)
        if errors:
            raise ConfigErrors(errors)

    def _check_channel(self, name: str, keys: Mapping[str, str]) -> None:
        plugin, props = self._plugin(name, keys)
        definition = plugin.config_def()
        if unknown := list(unknown_keys(definition, props, f"alerts.{name}")):
            raise ConfigErrors(unknown)
        if not any(self.registry.references.has_any(text) for text in props.values()):
            self._opened(name).close()

    def _plugin(
        self, name: str, keys: Mapping[str, str]
    ) -> tuple[type[AlertChannel], dict[str, str]]:
        """Return the plugin of a channel, and its configuration with unresolved references."""
        props, field_ = dict(keys), f"alerts.{name}"
        kind = props.pop("type", None)
        if kind is None:
            problem = "The channel has no type."
            raise ConfigError(problem, field=field_, fix="Set type to log, webhook or email.")
        return self.registry.alert_channel(kind, field=f"{field_}.type"), props

    def _opened(self, name: str) -> AlertChannel:
        """Return a configured channel, with the current values of secrets."""
        place = f"alerts.{name}"
        plugin, props = self._plugin(name, self.configured[name])
        references = self.registry.references
        definition = plugin.config_def()
        secret = (k.name for k in definition.keys.values() if k.type is ConfigType.PASSWORD)
        plain = [props[key] for key in secret if key in props]
        self.secrets.remember(text for text in plain if not references.has_any(text))
        try:
            config = definition.parse(references.resolved(props))
            made = plugin()
            try:
                made.configure(config)
            except BaseException:
                made.close()
                raise
        except ConfigErrors as several:
            raise errors_at(several.errors, place) from None
        except ConfigError as error:
            raise errors_at([error], place) from None
        return made
