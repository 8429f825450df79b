"""The base of all acceptance classes: the driver, the runtime and the configuration tests."""

from __future__ import annotations

import gc
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest

from headrace.sdk.config import ConfigDef, ConfigType
from headrace.sdk.connector import Connector
from headrace.sdk.sink import SinkTask
from headrace.sdk.sources import SourceConnector
from headrace.sdk.testing.driver import BrokenPromiseError, SinkDriver, SourceDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from headrace.acceptance.harness import Harness


_NUMBERS = {ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE}
_TYPED = {*_NUMBERS, ConfigType.BOOLEAN}
_NONSENSE = "no such value"


def _stop(plugin: object, promise: str, read: object) -> None:
    try:
        plugin.stop()  # type: ignore[attr-defined]  # connectors and tasks have it alike
    except Exception as error:
        seen = f"{type(plugin).__name__}.stop raised {error!r}."
        raise BrokenPromiseError(promise=promise, seen=seen, read=read) from error


def _require_named(
    harness: Harness,
    driver: SourceDriver | SinkDriver,
    config: Mapping[str, str],
    field: str,
    change: str,
) -> None:
    promise = f"Validation rejects the error and names the key: here {field}, because {change}."
    try:
        found = harness.problems(driver.connector, config)
    except Exception as error:
        seen = f"Validation itself failed: {error!r}."
        raise BrokenPromiseError(promise=promise, seen=seen, read=Connector.check) from error
    if not any(error.field == field for error in found):
        seen = "; ".join(map(str, found)) or "It was accepted."
        raise BrokenPromiseError(promise=promise, seen=seen, read=Connector.check)


def skip_if(reason: str) -> None:
    """Skip the calling test if there is a reason, and show the reason."""
    if reason:
        pytest.skip(reason)


class ConnectorAcceptance(ABC):
    """The tests for every connector. Subclass one of its subclasses instead."""

    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver | SinkDriver:
        """Return a driver for an empty external system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[SourceDriver | SinkDriver]:
        folder = tmp_path / "outside"
        folder.mkdir()
        driver = self.driver(folder)
        try:
            yield driver
        finally:
            driver.close()

    def test_a_good_configuration_is_accepted(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        found = headrace_harness.problems(made.connector, made.config())
        if found:
            raise BrokenPromiseError(
                promise="The driver's configuration is valid.",
                seen="; ".join(map(str, found)),
                read=Connector.check,
            )

    def test_a_missing_required_key_is_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        keys = made.connector.config_def().keys.values()
        for name in (key.name for key in keys if key.required):
            config = {key: text for key, text in made.config().items() if key != name}
            _require_named(headrace_harness, made, config, name, f"{name} is missing")

    def test_a_value_of_the_wrong_type_is_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        keys = made.connector.config_def().keys.values()
        for name in (key.name for key in keys if key.type in _TYPED):
            config = {**made.config(), name: _NONSENSE}
            _require_named(headrace_harness, made, config, name, f"{name} is {_NONSENSE!r}")

    def test_a_bad_configuration_is_refused_and_its_key_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        if not made.bad_configs():
            pytest.skip("The driver's bad_configs is empty.")
        for bad in made.bad_configs():
            config = {**made.config(), **bad.changes}
            texts = {key: text for key, text in config.items() if text is not None}
            _require_named(
                headrace_harness, made, texts, bad.field, f"the changes are {bad.changes}"
            )

    def test_the_connector_and_its_keys_are_documented(
        self, made: SourceDriver | SinkDriver
    ) -> None:
        keys = made.connector.config_def().keys.values()
        silent = [key.name for key in keys if not key.doc.strip()]
        if silent:
            raise BrokenPromiseError(
                promise="Every key has a doc.",
                seen=f"Keys without a doc: {', '.join(silent)}.",
                read=ConfigDef.define,
            )
        if not (made.connector.__doc__ or "").strip():
            raise BrokenPromiseError(
                promise="A connector's docstring says what it does; lists show its first line.",
                seen=f"{made.connector.__name__} has none.",
                read=Connector,
            )

    def test_the_keys_that_decide_rows_are_keys_of_the_connector(
        self, made: SourceDriver | SinkDriver
    ) -> None:
        defined = made.connector.config_def().keys
        unknown = [key for key in getattr(made.connector, "row_keys", ()) if key not in defined]
        if unknown:
            raise BrokenPromiseError(
                promise="row_keys are keys of the connector.",
                seen=f"Unknown keys: {', '.join(unknown)}.",
                read=SourceConnector,
            )

    def test_stop_bears_a_start_that_never_was(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        promise = "stop is called once, also after a failed start, and does not raise."
        if issubclass(made.connector, SourceConnector):
            _stop(made.connector(), promise, SourceConnector.stop)
        task = headrace_harness.unstarted(made.connector, made.config())
        _stop(task, promise, SinkTask.stop)


_CYCLES = 4
"""A leak grows with each start and stop; resources that a library caches do not. So this many
more threads, files or child processes after as many cycles are a leak; fewer are not."""
_SETTLE_SECONDS = 5.0
"""How long released resources may take to disappear: closing is not always immediate."""


@dataclass(frozen=True)
class _Held:
    threads: frozenset[threading.Thread]
    files: int
    children: frozenset[int]

    @classmethod
    def now(cls) -> _Held:
        gc.collect()
        process = psutil.Process()
        children = frozenset(child.pid for child in process.children())
        # Connections have a file descriptor each.
        return cls(frozenset(threading.enumerate()), process.num_fds(), children)

    def more_than(self, before: _Held) -> str:
        """Describe what is held beyond ``before``; empty if nothing is."""
        threads = sorted(thread.name for thread in self.threads - before.threads)
        children = self.children - before.children
        files = self.files - before.files
        found = []
        if len(threads) >= _CYCLES:
            found.append(f"{len(threads)} threads ({', '.join(threads[:3])}, ...)")
        if files >= _CYCLES:
            found.append(f"{files} open files or connections")
        if len(children) >= _CYCLES:
            found.append(f"{len(children)} child processes")
        return " and ".join(found)


def check_leaks(cycle: Callable[[], None]) -> None:
    """Check that all resources acquired in ``cycle`` are released at its end.

    It runs once before counting, because libraries keep pools and caches from their first use.
    """
    cycle()
    before = _Held.now()
    for _ in range(_CYCLES):
        cycle()
    deadline = time.monotonic() + _SETTLE_SECONDS
    while more := _Held.now().more_than(before):
        if time.monotonic() > deadline:
            raise BrokenPromiseError(
                promise="After stop, a connector and its tasks hold no resources.",
                seen=f"{_CYCLES} starts and stops left {more}.",
                read=SourceConnector.stop,
            )
        time.sleep(0.1)
