"""The kinds of databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace_plugins.databases.address import MYSQL, POSTGRESQL, SQLITE, Address
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


def database_of(address: Address) -> Database:
    """Return the database at an address."""
    kind = _KINDS.get(address.kind)
    if kind is None:
        raise ConfigError(
            problem=f"A database of the kind {address.kind} cannot be read here.",
            fix=f"Use one of: {', '.join(_KINDS)}.",
            field="connection.url",
        )
    return kind(address)
