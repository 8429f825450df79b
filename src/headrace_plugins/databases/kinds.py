"""The kinds of databases."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from headrace.sdk import ConfigError
from headrace.sdk.jdbc import DriverSettings
from headrace_plugins.databases.address import (
    JDBC,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    ConnectionSettings,
)

if TYPE_CHECKING:
    from headrace_plugins.databases.database import Database

_Kind = TypeVar("_Kind", bound="Database")
_KINDS = {POSTGRESQL: "Postgresql", MYSQL: "Mysql", SQLITE: "Sqlite"}
"""The class of each kind, in the module of the same name, which is imported on demand."""


def database_of(settings: ConnectionSettings) -> Database:
    """Return the database of connection settings.

    Raises ConfigError for a kind that requires a JDBC driver, if the settings have no driver.
    """
    address = settings.address
    if address.kind == JDBC and isinstance(settings, DriverSettings):
        from headrace_plugins.databases.jdbc import AnyJdbc  # noqa: PLC0415 - as in _KINDS

        return AnyJdbc(address, settings.driver)
    name = _KINDS.get(address.kind)
    if name is None:
        raise ConfigError(
            problem=f"This connector does not support {address.kind} databases.",
            fix=f"Use one of: {', '.join(_KINDS)}; or use the connector jdbc.",
            field="connection.url",
        )
    module = import_module(f"{__package__}.{name.lower()}")
    kind: type[Database] = getattr(module, name)
    return kind(address)


def database_of_kind(settings: ConnectionSettings, kind: type[_Kind], connector: str) -> _Kind:
    """Return the database of connection settings, which must be of the connector's kind.

    Raises ConfigError if it is of another kind.
    """
    database = database_of(settings)
    if not isinstance(database, kind):
        raise ConfigError(
            problem=f"The connector {connector} follows {kind.__name__}, not "
            f"{settings.address.kind}.",
            fix="Set the URL of such a database, or use another connector.",
            field="connection.url",
        )
    return database
