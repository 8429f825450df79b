"""The kinds of databases."""

from __future__ import annotations

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
from headrace_plugins.databases.jdbc import AnyJdbc
from headrace_plugins.databases.mysql import Mysql
from headrace_plugins.databases.postgresql import Postgresql
from headrace_plugins.databases.sqlite import Sqlite

if TYPE_CHECKING:
    from headrace_plugins.databases.database import Database

_KINDS: dict[str, type[Database]] = {
    POSTGRESQL: Postgresql,
    MYSQL: Mysql,
    SQLITE: Sqlite,
}


def database_of(settings: ConnectionSettings) -> Database:
    """Return the database that settings lead to.

    Raises ConfigError: they can name no driver, and no other way leads to it.
    """
    address = settings.address
    if address.kind == JDBC and isinstance(settings, DriverSettings):
        return AnyJdbc(address, settings.driver)
    kind = _KINDS.get(address.kind)
    if kind is None:
        raise ConfigError(
            problem=f"A database of the kind {address.kind} cannot be reached here.",
            fix=f"Use one of: {', '.join(_KINDS)}; or the connector jdbc.",
            field="connection.url",
        )
    return kind(address)
