"""The external schedulers of the settings, and their registrars."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.control import errors_at, unknown_keys
from headrace.scheduler import ENGINES, MissingEngine, Registrar, ScheduleEngine
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import ConfigType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.model import JobSpec
    from headrace.plugins import References
    from headrace.scheduler import Callbacks
    from headrace.sdk.config import ConfigDef
    from headrace.store import RegistrationStore


@dataclass
class Engines:
    """The engines of the setting ``schedule_engines``.

    Args:
        given: The configuration of each engine, with its type, by name.
    """

    given: Mapping[str, Mapping[str, str]]
    references: References

    @cached_property
    def _types(self) -> Mapping[str, type[ScheduleEngine]]:
        return {name: _class(name, keys) for name, keys in self.given.items()}

    def check(self, spec: JobSpec) -> None:
        """Raise ConfigError for a job whose engine is unknown, or cannot trigger it."""
        if spec.engine is None:
            return
        if (kind := self._types.get(spec.engine)) is None:
            known = ", ".join(sorted(self._types)) or "none"
            raise ConfigError(
                problem=f"Unknown schedule engine {spec.engine!r}.",
                fix=f"The setting schedule_engines of this server has: {known}.",
                field="schedule.engine",
            )
        if spec.schedule is not None:
            kind.check(spec.schedule)

    def registrars(
        self,
        store: RegistrationStore,
        callbacks: Callbacks,
        clock: Callable[[], datetime],
    ) -> Sequence[Registrar]:
        """Return the registrars, which keep each engine in sync with the store.

        Raises ConfigErrors for invalid settings of an engine.
        """
        engines: dict[str, ScheduleEngine] = {
            name: MissingEngine(name) for name in store.engines() - self.given.keys()
        }
        engines |= {name: self._open(name) for name in self.given}
        return [
            Registrar(
                name=name,
                engine=engine,
                store=store,
                clock=clock,
                token=callbacks.token,
                take_on=callbacks.scheduler.take_on,
                redact=self.references.secrets.redacted_error,
            )
            for name, engine in engines.items()
        ]

    def _open(self, name: str) -> ScheduleEngine:
        kind, place = self._types[name], f"schedule_engines.{name}"
        keys = {key: text for key, text in self.given[name].items() if key != "type"}
        known = kind.config_def()
        if unknown := list(unknown_keys(known, keys, place)):
            raise ConfigErrors(unknown)
        if written := list(self._written_out(known, keys)):
            raise errors_at(written, place)
        try:
            return kind(kind.settings_class().parsed(self.references.resolved(keys)))
        except ConfigErrors as several:
            raise errors_at(several.errors, place) from None

    def _written_out(self, known: ConfigDef, keys: Mapping[str, str]) -> Iterator[ConfigError]:
        for key, text in keys.items():
            is_secret = known.keys[key].type is ConfigType.PASSWORD
            if is_secret and not self.references.is_only(text):
                # Guarantee 6: users who may not know the secret can read the settings.
                fix = "Use a reference, such as ${env:AIRFLOW_PASSWORD}."
                yield ConfigError("The secret is in plain text.", fix=fix, field=key)


def _class(name: str, keys: Mapping[str, str]) -> type[ScheduleEngine]:
    field, known = f"schedule_engines.{name}.type", ", ".join(ENGINES)
    if (kind := keys.get("type")) is None:
        problem = "The engine has no type."
        raise ConfigError(problem, field=field, fix=f"Set it to one of: {known}.")
    if kind not in ENGINES:
        problem = f"Unknown type {kind!r}."
        raise ConfigError(problem, field=field, fix=f"Set it to one of: {known}.")
    return ENGINES[kind]
