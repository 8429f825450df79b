"""The JDBC drivers of databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace_plugins.databases.address import JDBC, address_of

if TYPE_CHECKING:
    from headrace_plugins.databases.address import Address

_KNOWN: Mapping[str, str] = {
    "h2": "com.h2database:h2:2.3.232",
    "derby": "org.apache.derby:derby:10.16.1.1, org.apache.derby:derbyshared:10.16.1.1",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc:12.10.1.jre11",
    "oracle": "com.oracle.database.jdbc:ojdbc11:23.8.0.25.04",
    "db2": "com.ibm.db2:jcc:12.1.0.0",
    "duckdb": "org.duckdb:duckdb_jdbc:1.3.2.0",
    "snowflake": "net.snowflake:snowflake-jdbc:3.24.2",
    "trino": "io.trino:trino-jdbc:476",
}
"""Maven coordinates by the subprotocol of a JDBC URL; other versions may work too."""
_IN_A_FILE: Mapping[str, str] = dict.fromkeys(
    ("clickhouse", "ch"), "the jar clickhouse-jdbc-<version>-all.jar of ClickHouse's releases"
)
"""Drivers whose jar in the registry lacks its dependencies: the jar to download instead."""


def protocol(address: Address) -> str:
    """Return the subprotocol of a JDBC URL: the part between ``jdbc:`` and the next colon."""
    return address.url.split(":")[1].lower()


def driver_named(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error if a URL requires a driver and none is set: a rule of settings."""
    try:
        address = address_of(str(props.get("connection.url")))
    except ConfigError:
        return  # the key's own validator reports it
    if address.kind != JDBC or props.get("driver.coordinates") or props.get("driver.path"):
        return
    name = protocol(address)
    fix = f"Set it to {_KNOWN.get(name, 'the Maven coordinates of the driver')}."
    if name in _IN_A_FILE:
        fix = f"Set driver.path to {_IN_A_FILE[name]}."
    yield ConfigError(
        problem=f"{address.title} requires a JDBC driver, but none is set.",
        fix=fix,
        field="driver.coordinates",
    )
