"""References in configurations, such as ``${env:DB_PASSWORD}``, and redaction of secrets."""

from __future__ import annotations

import copy
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from headrace.sdk import ConfigError, ConfigErrors, HeadraceError, ProviderContext
from headrace.sdk.config.values import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.sdk import ConfigProvider


_SHORTEST = 4
"""Shorter texts occur everywhere; masking them would reveal them."""
_MOST = 10_000
_PLAIN = frozenset({"true", "false", "null", "none"})


Known = TypeVar("Known", bound=HeadraceError)


class Secrets:
    """Secrets to redact. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, secrets: Iterable[str]) -> None:
        """Redact these from now on; beyond a maximum the oldest secrets are dropped."""
        with self._lock:
            for each in secrets:
                text = each.strip()
                if len(text) >= _SHORTEST and text.lower() not in _PLAIN:
                    self._known[text] = None
                    self._known.move_to_end(text)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def redacted(self, text: str) -> str:
        """Return the text with every secret replaced by `[hidden]`."""
        with self._lock:
            found = [each for each in self._known if each in text]
        for each in sorted(found, key=len, reverse=True):  # one may contain another
            text = text.replace(each, HIDDEN)
        return text

    def redacted_error(self, error: Exception) -> Exception:
        """Return an error with secrets redacted; the same object if it contains none."""
        if isinstance(error, ConfigErrors):
            found = [self.clean(each) for each in error.errors]
            return error if found == list(error.errors) else ConfigErrors(found)
        if isinstance(error, HeadraceError):
            return self.clean(error)
        text = str(error)
        shown = self.redacted(text)
        return error if shown == text else HeadraceError(f"{type(error).__name__}: {shown}")

    def clean(self, error: Known) -> Known:
        """Return a HeadraceError of the same class with secrets redacted."""
        problem, fix = self.redacted(error.problem), self.redacted(error.fix)
        if (problem, fix) == (error.problem, error.fix):
            return error
        found = copy.copy(error)
        found.problem, found.fix, found.args = problem, fix, (problem,)
        return found


_CLASS = "class"
_REFERENCE = re.compile(
    r"\$\{(?P<provider>(?:(?!\$\{)[^}:]){1,1000}):"
    r"(?:(?P<path>(?:(?!\$\{)[^}:]){0,1000}):)?(?P<key>(?:(?!\$\{)[^}]){0,1000})\}"
)
"""As in Kafka's ConfigTransformer, the path ends at its first colon. The pattern takes linear
time: a reference has a maximum length, and may not contain the start of another."""
Find: TypeAlias = "Callable[..., type[ConfigProvider]]"


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """The settings of configuration providers.

    ``keys`` is the configuration of each provider by its name in references; its key ``class``
    selects a provider other than the one with that name. Every resolved value is added to
    ``secrets``.
    """

    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    context: ProviderContext = field(default_factory=ProviderContext)
    secrets: Secrets = field(default_factory=Secrets)


class _Reference(NamedTuple):
    provider: str
    path: str
    key: str


class References:
    """Resolves references. Thread-safe.

    As in Kafka Connect, references to unknown providers and references in values stay
    unchanged. Guarantee 6: values are neither stored nor shown.
    """

    def __init__(self, find: Find, names: frozenset[str], settings: ProviderSettings) -> None:
        """Use the installed providers with these names, and the providers of the settings."""
        self._find = find
        self._names = names | settings.keys.keys()
        self._settings = settings
        self._made: dict[str, ConfigProvider] = {}
        self._lock = threading.Lock()

    @property
    def secrets(self) -> Secrets:
        """The secrets to redact: all values that were resolved so far."""
        return self._settings.secrets

    @property
    def serving(self) -> bool:
        """Whether configurations may come from other users than the one of this process."""
        return self._settings.context.serving

    def has_any(self, text: str) -> bool:
        """Return whether a text contains a reference."""
        return next(self._in(text), None) is not None

    def is_only(self, text: str) -> bool:
        """Return whether a text is a reference and nothing else, so that it may be shown."""
        found = _REFERENCE.fullmatch(text.strip())
        return found is not None and self._knows(found["provider"])

    def resolved(
        self, config: Mapping[str, str], name: Callable[[str], str] = str
    ) -> dict[str, str]:
        """Return a configuration with resolved references.

        Raises ConfigErrors with all references that have no value; ``name`` returns an error's
        field for a key.
        """
        values, errors = self.values(config, name)
        if errors:
            raise ConfigErrors(errors)
        return values

    def values(
        self, config: Mapping[str, str], name: Callable[[str], str] = str
    ) -> tuple[dict[str, str], list[ConfigError]]:
        """Return a configuration with resolved references, and the errors.

        Keys with errors keep their references.
        """
        found = {key: set(self._in(text)) for key, text in config.items()}
        asked = {each for references in found.values() for each in references}
        if not asked:
            return dict(config), []
        known: dict[_Reference, str | HeadraceError] = {}
        for provider, path in sorted({(each.provider, each.path) for each in asked}):
            keys = {e.key for e in asked if (e.provider, e.path) == (provider, path)}
            known |= self._asked(provider, path, keys)
        self.secrets.remember(value for value in known.values() if isinstance(value, str))
        values = dict(config)
        errors: list[ConfigError] = []
        for key, references in found.items():
            wrong = [known[each] for each in sorted(references)]
            failed = [each for each in wrong if isinstance(each, HeadraceError)]
            unlike = {error.problem: error for error in failed}.values()
            errors += [ConfigError(e.problem, fix=e.fix, field=name(key)) for e in unlike]
            if not failed:
                values[key] = self._put(config[key], known)
        return values, errors

    def shown(self, text: str, config: Mapping[str, str]) -> str:
        """Return a text, such as an error about a configuration, without resolved values.

        Values of the configuration's references are replaced by the references.
        """
        found = {match[0] for each in config.values() for match in _REFERENCE.finditer(each)}
        values, _ = self.values({each: each for each in found})
        for reference, value in sorted(values.items(), key=lambda each: -len(each[1])):
            if self.secrets.redacted(value) == HIDDEN:
                text = text.replace(value, reference)
        return self.secrets.redacted(text)

    def _asked(
        self, provider: str, path: str, keys: set[str]
    ) -> dict[_Reference, str | HeadraceError]:
        try:
            values = self._provider(provider).values(path, sorted(keys))
        except HeadraceError as error:
            return {_Reference(provider, path, key): error for key in keys}
        return {
            _Reference(provider, path, key): values[key]
            if key in values
            else _missing(provider, path, key)
            for key in keys
        }

    def _put(self, text: str, known: Mapping[_Reference, str | HeadraceError]) -> str:
        def value(match: re.Match[str]) -> str:
            if not self._knows(match["provider"]):
                return match[0]
            return str(known[_reference(match)])

        return _REFERENCE.sub(value, text)

    def _in(self, text: str) -> Iterator[_Reference]:
        if "${" not in text:
            return
        for match in _REFERENCE.finditer(text):
            if self._knows(match["provider"]):
                yield _reference(match)

    def _knows(self, provider: str) -> bool:
        return provider in self._names

    def _provider(self, name: str) -> ConfigProvider:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._new_provider(name)
            return self._made[name]

    def _new_provider(self, name: str) -> ConfigProvider:
        keys = dict(self._settings.keys.get(name, {}))
        found = self._find(keys.pop(_CLASS, name), field=f"config_providers.{name}.class")
        try:
            config = found.config_def().parse(keys)
        except ConfigErrors as several:
            first = several.errors[0]
            problem = f"The settings of the configuration provider {name} are invalid: "
            place = f"config_providers.{name}.{first.field}"
            raise ConfigError(problem + first.problem, fix=first.fix, field=place) from None
        return found(config, self._settings.context)


def _reference(match: re.Match[str]) -> _Reference:
    return _Reference(match["provider"], match["path"] or "", match["key"])


def _missing(provider: str, path: str, key: str) -> ConfigError:
    shown = ":".join(part for part in (provider, path, key) if part)
    problem = f"The reference ${{{shown}}} has no value."
    return ConfigError(problem, fix="Set the value, or correct the reference.")
