"""Checks of a connector's configuration and of its life without data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.config import ConfigDef, ConfigType
from headrace.sdk.connector import Connector
from headrace.sdk.sink import SinkTask
from headrace.sdk.sources import SourceConnector
from headrace.sdk.testing.promise import BrokenPromiseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sdk.errors import HeadraceError
    from headrace.sdk.testing.driver import SinkDriver, SourceDriver
    from headrace.sdk.testing.harness import Harness

_NUMBERS = {ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE}
_TYPED = {*_NUMBERS, ConfigType.BOOLEAN}
_NONSENSE = "no such value"


def check_good_config(harness: Harness, driver: SourceDriver | SinkDriver) -> None:
    """Check that the driver's configuration is accepted."""
    found = harness.problems(driver.connector, driver.config())
    if found:
        raise BrokenPromiseError(
            promise="The driver's configuration is valid.",
            seen="; ".join(map(str, found)),
            read=Connector.check,
        )


def check_required_keys(harness: Harness, driver: SourceDriver | SinkDriver) -> None:
    """Check that each required key is missed when it is not there."""
    keys = driver.connector.config_def().keys.values()
    for name in (key.name for key in keys if key.required):
        config = {key: text for key, text in driver.config().items() if key != name}
        _require_named(harness, driver, config, name, f"{name} is missing")


def check_wrong_values(harness: Harness, driver: SourceDriver | SinkDriver) -> None:
    """Check that each number and each switch refuses a text that is neither."""
    keys = driver.connector.config_def().keys.values()
    for name in (key.name for key in keys if key.type in _TYPED):
        config = {**driver.config(), name: _NONSENSE}
        _require_named(harness, driver, config, name, f"{name} is {_NONSENSE!r}")


def check_bad_configs(harness: Harness, driver: SourceDriver | SinkDriver) -> None:
    """Check that the driver's bad configurations are refused and the right key is named."""
    for bad in driver.bad_configs():
        config = {**driver.config(), **bad.changes}
        texts = {key: text for key, text in config.items() if text is not None}
        _require_named(harness, driver, texts, bad.field, f"the changes are {bad.changes}")


def check_documented(driver: SourceDriver | SinkDriver) -> None:
    """Check that every key says what it means, and the connector what it does."""
    keys = driver.connector.config_def().keys.values()
    silent = [key.name for key in keys if not key.doc.strip()]
    if silent:
        raise BrokenPromiseError(
            promise="Every key has a doc.",
            seen=f"These have none: {', '.join(silent)}.",
            read=ConfigDef.define,
        )
    if not (driver.connector.__doc__ or "").strip():
        raise BrokenPromiseError(
            promise="A connector's docstring says what it does; lists show its first line.",
            seen=f"{driver.connector.__name__} has none.",
            read=Connector,
        )


def check_stop_without_start(harness: Harness, driver: SourceDriver | SinkDriver) -> None:
    """Check that ``stop`` bears a start that failed or never was."""
    promise = "stop is called once, also after a failed start, and does not raise."
    if issubclass(driver.connector, SourceConnector):
        _stop(driver.connector(), promise, SourceConnector.stop)
    task = harness.unstarted(driver.connector, driver.config())
    _stop(task, promise, SinkTask.stop)


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
    promise = f"Validation refuses what is wrong and names the key: here {field}, as {change}."
    try:
        found = harness.problems(driver.connector, config)
    except Exception as error:
        seen = f"Validation itself failed: {error!r}."
        raise BrokenPromiseError(promise=promise, seen=seen, read=Connector.check) from error
    if not any(_names(error, field) for error in found):
        seen = "; ".join(map(str, found)) or "It was accepted."
        raise BrokenPromiseError(promise=promise, seen=seen, read=Connector.check)


def _names(error: HeadraceError, field: str) -> bool:
    return error.field == field
