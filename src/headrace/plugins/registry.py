"""The installed plugins, found by entry point, and calls to them with a timeout."""

from __future__ import annotations

import importlib
import math
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from headrace.model import PluginNotFoundError
from headrace.plugins.access import Access
from headrace.plugins.references import ProviderSettings, References
from headrace.sdk import (
    AlertChannel,
    ConfigError,
    ConfigProvider,
    Connector,
    Converter,
    HeadraceError,
    MetricsReporter,
    Predicate,
    SinkConnector,
    SourceConnector,
    Transform,
)
from headrace.sdk.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.metadata import EntryPoint

    from headrace.sdk.config import ConfigDef


T = TypeVar("T")


class PluginTimeoutError(HeadraceError):
    """A connector did not start, plan its tasks or check its configuration in time."""

    code = "plugin.timeout"

    def __init__(self, limit: timedelta, *, field: str | None = None) -> None:
        problem = f"The connector did not respond within {limit.total_seconds():g} s."
        fix = (
            "Check whether the system that it uses can be reached, then restart it; raise "
            "HEADRACE_CONNECTOR_TIMEOUT if it needs longer."
        )
        super().__init__(problem, fix=fix, field=field)


def aside(name: str, work: Callable[[], T]) -> Future[T]:
    """Start work on a thread with that name; the caller may stop waiting for it.

    Its log lines have the caller's context variables. A thread that hangs is abandoned; unlike
    a thread of a pool it does not block the process's exit.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            answer.set_exception(error)
        else:
            answer.set_result(found)

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    return answer


def has_ended(work: Future[T], by: float | None = None) -> bool:
    """Wait for the work of ``aside``; return whether it has ended.

    ``by`` is the deadline in seconds of the monotonic clock; None for no deadline.
    """
    wait([work], None if by is None else max(0.0, by - time.monotonic()))
    return work.done()


def within(limit: timedelta, name: str, work: Callable[[], T]) -> T:
    """Return the result of work; abandon it after ``limit``.

    Raises PluginTimeoutError.
    """
    answer = aside(name, work)
    if not has_ended(answer, time.monotonic() + limit.total_seconds()):
        raise PluginTimeoutError(limit)
    return answer.result()


_CACHED = 1024
"""The maximum number of cached look-ups: clients may ask for any name."""
_RELOAD_SECONDS = 5
"""The minimum time between two searches for installed plugins because of an unknown name."""
_importing = threading.RLock()
"""Two threads that import modules with a circular import may get a partly imported module."""

log = structlog.get_logger(__name__)


class PluginKind(StrEnum):
    """The kinds of plugin; each has an entry-point group ``headrace.<kind>s``."""

    SOURCE = "source"
    SINK = "sink"
    TRANSFORM = "transform"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    PROVIDER = "provider"
    REPORTER = "reporter"
    ALERT_CHANNEL = "alert_channel"

    @property
    def group(self) -> str:
        return f"headrace.{self.value}s"


_BASES: dict[PluginKind, type] = {
    PluginKind.SOURCE: SourceConnector,
    PluginKind.SINK: SinkConnector,
    PluginKind.TRANSFORM: Transform,
    PluginKind.PREDICATE: Predicate,
    PluginKind.CONVERTER: Converter,
    PluginKind.PROVIDER: ConfigProvider,
    PluginKind.REPORTER: MetricsReporter,
    PluginKind.ALERT_CHANNEL: AlertChannel,
}


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin."""

    name: str
    kind: PluginKind
    plugin: Any

    @property
    def class_path(self) -> str:
        return f"{self.plugin.__module__}.{self.plugin.__qualname__}"

    @property
    def aliases(self) -> tuple[str, ...]:
        """Class names of the plugin in other systems."""
        return tuple(getattr(self.plugin, "aliases", ()))

    @property
    def version(self) -> str:
        return str(getattr(self.plugin, "version", "0"))

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.plugin.__doc__ or "").strip().partition("\n")[0]

    def config_def(self) -> ConfigDef:
        definition: ConfigDef = self.plugin.config_def()
        return definition


class Registry:
    """Looks up plugins. Listing names imports nothing; a look-up imports one plugin.

    Look-ups are cached, as many connectors use the same few plugins.

    Args:
        providers: The settings of configuration providers.
        access: The access rules for configurations on this machine.
        check_timeout: The timeout for a connector's check of a configuration.
    """

    def __init__(
        self,
        providers: ProviderSettings | None = None,
        access: Access | None = None,
        check_timeout: timedelta = timedelta(minutes=1),
    ) -> None:
        self.check_timeout = check_timeout
        self.access = access or Access()
        self._reloading = threading.Lock()
        self._reload_from = -math.inf
        self._search = lru_cache(maxsize=_CACHED)(self._searched)
        known = frozenset(self.names(PluginKind.PROVIDER))
        self.references = References(self.provider, known, providers or ProviderSettings())

    def source(self, name: str, *, field: str | None = None) -> type[SourceConnector]:
        """Return the plugin with that name, alias or class path, as the methods below do."""
        plugin: type[SourceConnector] = self._find(PluginKind.SOURCE, name, field).plugin
        return plugin

    def sink(self, name: str, *, field: str | None = None) -> type[SinkConnector]:
        plugin: type[SinkConnector] = self._find(PluginKind.SINK, name, field).plugin
        return plugin

    def transform(self, name: str, *, field: str | None = None) -> type[Transform]:
        """Return the transform with that name, alias or class path, without ``$Value``."""
        plugin: type[Transform] = self._find(PluginKind.TRANSFORM, name, field).plugin
        return plugin

    def predicate(self, name: str, *, field: str | None = None) -> type[Predicate]:
        plugin: type[Predicate] = self._find(PluginKind.PREDICATE, name, field).plugin
        return plugin

    def converter(self, name: str, *, field: str | None = None) -> type[Converter]:
        plugin: type[Converter] = self._find(PluginKind.CONVERTER, name, field).plugin
        return plugin

    def provider(self, name: str, *, field: str | None = None) -> type[ConfigProvider]:
        plugin: type[ConfigProvider] = self._find(PluginKind.PROVIDER, name, field).plugin
        return plugin

    def reporter(self, name: str, *, field: str | None = None) -> type[MetricsReporter]:
        plugin: type[MetricsReporter] = self._find(PluginKind.REPORTER, name, field).plugin
        return plugin

    def alert_channel(self, name: str, *, field: str | None = None) -> type[AlertChannel]:
        plugin: type[AlertChannel] = self._find(PluginKind.ALERT_CHANNEL, name, field).plugin
        return plugin

    def connector_kind(self, name: str, *, field: str | None = None) -> PluginKind:
        """Return whether the class of a Kafka Connect configuration is a source or a sink.

        Raises ConfigError for a name of both a source and a sink, and PluginNotFoundError for
        an unknown name.
        """
        both = (PluginKind.SOURCE, PluginKind.SINK)
        found = [kind for kind in both if self._has(kind, name)]
        if not found and self._reloaded():
            found = [kind for kind in both if self._has(kind, name)]
        if len(found) == 1:
            return found[0]
        if found:
            source, sink = (self._find(kind, name, None).class_path for kind in both)
            problem = f"{name!r} is ambiguous: it names both a source and a sink."
            fix = f"Set topic to read, or topics to write; or use {source}, or {sink}."
            raise ConfigError(problem, field=field, fix=fix)
        known = [*self.names(PluginKind.SOURCE), *self.names(PluginKind.SINK)]
        raise PluginNotFoundError(name, known=known, kind="connector class", field=field)

    def reads(self, config: Mapping[str, str]) -> bool:
        """Return whether a configuration in Kafka Connect's format is of a source.

        If its class names both a source and a sink, ``topics`` and ``topics.regex`` mean the
        sink, and ``topic`` the source. Raises the errors of ``connector_kind``.
        """
        name = config.get("connector.class", "")
        if all(self._has(kind, name) for kind in (PluginKind.SOURCE, PluginKind.SINK)):
            if config.keys() & {"topics", "topics.regex"}:
                return False
            if "topic" in config:
                return True
        return self.connector_kind(name, field="connector.class") is PluginKind.SOURCE

    def names(self, kind: PluginKind) -> list[str]:
        """Return the names of one kind, sorted."""
        return sorted(self._entries[kind])

    def all_of(self, kind: PluginKind) -> Iterator[PluginInfo]:
        """Yield the plugins of one kind, by name. Imports them.

        Plugins that cannot be imported are skipped, so that they do not hide the others.
        """
        for name in self.names(kind):
            with suppress(SetupError):
                yield self.load(kind, name)

    def warm(self) -> None:
        """Import every plugin, so that look-ups do not wait; log failed imports."""
        for kind in PluginKind:
            for name in self.names(kind):
                try:
                    self.load(kind, name)
                except SetupError as error:
                    log.warning("plugin cannot be loaded", plugin=name, why=str(error))

    def reload(self) -> None:
        """Search for installed plugins again; plugins that are already loaded stay loaded."""
        importlib.invalidate_caches()
        self.__dict__.pop("_entries", None)
        self._search.cache_clear()  # missing plugins may be installed now

    def find(self, name: str) -> list[PluginInfo]:
        """Return the plugins of any kind with that name, alias or class path."""
        kinds = [kind for kind in PluginKind if self._has(kind, name)]
        if not kinds and self._reloaded():
            kinds = [kind for kind in PluginKind if self._has(kind, name)]
        found = [self._find(kind, name, None) for kind in kinds]
        if not found:
            known = [known for kind in PluginKind for known in self.names(kind)]
            raise PluginNotFoundError(name, known=known)
        return found

    @cached_property
    def _entries(self) -> dict[PluginKind, dict[str, EntryPoint]]:
        # Each call of entry_points reads the metadata of all installed packages.
        installed = entry_points()
        return {
            kind: {entry.name: entry for entry in installed.select(group=kind.group)}
            for kind in PluginKind
        }

    def load(self, kind: PluginKind, name: str) -> PluginInfo:
        """Import the plugin of a kind and name. Raises SetupError if that fails."""
        entry = self._entries[kind][name]
        try:
            with _importing:
                return PluginInfo(name, kind, entry.load())
        except Exception as error:
            # The import of the plugin's module may raise anything.
            problem = f"The {kind.value} {name} ({entry.value}) cannot be loaded: {error}."
            fix = "Reinstall its package, with its extras."
            raise SetupError(problem, fix=fix) from error

    def _has(self, kind: PluginKind, name: str) -> bool:
        return self._search(kind, name) is not None

    def _reloaded(self) -> bool:
        """Search for installed plugins again, unless that was just done; return whether it did.

        A plugin may be installed while a server runs; clients may ask for any name.
        """
        now = time.monotonic()
        with self._reloading:
            if now < self._reload_from:
                return False
            self._reload_from = now + _RELOAD_SECONDS
        self.reload()
        return True

    def _find(self, kind: PluginKind, name: str, field: str | None) -> PluginInfo:
        for _ in range(2):
            if (found := self._search(kind, name)) is not None:
                return found
            if not self._reloaded():
                break
        raise PluginNotFoundError(name, known=self.names(kind), kind=kind.value, field=field)

    def _searched(self, kind: PluginKind, name: str) -> PluginInfo | None:
        if name in self._entries[kind]:
            return self.load(kind, name)
        for info in self.all_of(kind):
            if name == info.class_path or name in info.aliases:
                return info
        # An import runs the module's code: unless allowed, import only installed plugins.
        if not self.access.code and name not in self.access.classes:
            return None
        if (plugin := _import(name)) is not None and issubclass(plugin, _BASES[kind]):
            return PluginInfo(name, kind, plugin)
        return None


def _import(path: str) -> type | None:
    """Return the class at ``module.Class``, or None.

    Raises SetupError if the module exists, but cannot be imported.
    """
    module, _, name = path.rpartition(".")
    parts = module.split(".")
    # The import of a module that is a program runs it.
    if "__main__" in parts or not all(map(str.isidentifier, parts)):
        return None
    try:
        with _importing:
            found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    except (Exception, SystemExit) as error:
        problem = f"The module {module} cannot be imported: {type(error).__name__}: {error}"
        raise SetupError(problem, fix="Correct the class path, or the module.") from error
    if isinstance(found, type) and issubclass(found, (Connector, *_BASES.values())):
        return found
    return None
