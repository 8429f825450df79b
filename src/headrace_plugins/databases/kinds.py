"""The kinds of databases."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_KINDS = {POSTGRESQL: "Postgresql", MYSQL: "Mysql", SQLITE: "Sqlite"}
"""The class of each kind, in the module of its name: what is not used takes no time."""


def database_of(settings: ConnectionSettings) -> Database:
    """Return the database that settings lead to.

    Raises ConfigError: they can name no driver, and no other way leads to it.
    """
    address = settings.address
    if address.kind == JDBC and isinstance(settings, DriverSettings):
        from headrace_plugins.databases.jdbc import AnyJdbc  # noqa: PLC0415 - as in _KINDS

        return AnyJdbc(address, settings.driver)
    name = _KINDS.get(address.kind)
    if name is None:
        raise ConfigError(
            problem=f"A database of the kind {address.kind} cannot be reached here.",
            fix=f"Use one of: {', '.join(_KINDS)}; or the connector jdbc.",
            field="connection.url",
        )
    module = import_module(f"{__package__}.{name.lower()}")
    kind: type[Database] = getattr(module, name)
    return kind(address)
