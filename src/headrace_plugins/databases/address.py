"""Addresses of databases, with the setting names of Kafka Connect, and their JDBC drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Lambda, Password, Settings, setting
from headrace.sdk.location import Location

POSTGRESQL = "postgresql"
MYSQL = "mysql"
SQLITE = "sqlite"
JDBC = "jdbc"

_KINDS = {
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}
_PORTS = {POSTGRESQL: 5432, MYSQL: 3306}
_SCHEME = re.compile(r"(?:jdbc:)?([a-z][a-z0-9+]*):", re.IGNORECASE)
_AUTHORITY = re.compile(r"//[^/]*")
_DATABASE = re.compile(r"(?i)[;?&]database(?:name)?=([^;?&]*)")
_SECRET = re.compile(
    r"(?i)(password|pwd|passwd|secret|token|scram_client_key|scram_server_key)\s*="
    r"|//[^/?;@]*:[^/?;@]*@|:thin:[^/@]*/[^@]*@"
)
"""A secret in a URL: as an option, after the user name, or in Oracle's form."""
_OPTIONS = {
    *("application_name", "channel_binding", "connect_timeout", "gssencmode", "options"),
    *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval"),
    *("load_balance_hosts", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation"),
    *("sslrootcert", "sslsni", "ssl_max_protocol_version", "ssl_min_protocol_version"),
    *("target_session_attrs", "tcp_user_timeout", "user"),
}
"""The libpq options that a URL may have. Others override the URL's host, such as hostaddr, or
refer to passwords and files on this machine."""
_FILES = {"sslcert", "sslcrl", "sslkey", "sslrootcert", "ssl_ca", "ssl_cert", "ssl_key"}
_SOCKETS = "/var/run/postgresql"
"""The socket folder of a PostgreSQL server if no host is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a database and the credentials.

    Args:
        kind: The kind of database; JDBC for a database that requires its JDBC driver.
        url: The configured URL, without user and password.
        host: The server's host name; empty for a file, or if only the driver knows it.
        others: Further PostgreSQL servers, which libpq tries in order.
        database: The name of the database on the server, or the path of the file.
        options: The query parameters of the URL.
    """

    kind: str
    url: str
    host: str = ""
    port: int = 0
    others: tuple[tuple[str, int], ...] = ()
    database: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title for users; never contains a secret."""
        if self.kind == SQLITE:
            return self.database
        if self.kind == JDBC:
            return self.url.partition("?")[0].partition(";")[0]
        return f"{self.kind}://{_authority(self.servers)}/{self.database}"

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The hosts and ports of the servers, in connection order."""
        return ((self.host, self.port), *self.others)

    @property
    def marked(self) -> str:
        """The name of the database in the marks that it stores.

        Does not contain the host, which may have several names or change in a failover while a
        batch is in doubt, nor other connection options of the URL.
        """
        if self.kind != JDBC:
            return f"{self.kind} {self.database}"
        place = _AUTHORITY.sub("//", self.title)
        found = _DATABASE.search(self.url)  # an option of SQL Server's URLs
        return f"{place} {found[1]}" if found else place


def address_of(url: str, user: str | None = None, password: str | None = None) -> Address:
    """Parse the URL of a database.

    Accepts ``postgresql://host/db``, ``mysql://…``, ``mariadb://…`` and ``sqlite:path``, each
    with an optional ``jdbc:`` prefix, and any other ``jdbc:…`` URL for its driver.

    Raises ConfigError for any other URL, and for a URL with a password.
    """
    found = _SCHEME.match(url)
    if found is None:
        raise ConfigError(
            problem=f"Invalid URL {url.rpartition('@')[2]!r}: the kind of database is missing.",
            fix="Write postgresql://host/database, mysql://…, sqlite:/path/of.db or jdbc:…",
            field="connection.url",
        )
    kind = _KINDS.get(found[1].lower())
    if kind is None and not url.lower().startswith("jdbc:"):
        raise ConfigError(
            problem=f"Unknown kind of database {found[1]!r}.",
            fix="Use postgresql, mysql, mariadb or sqlite, or the jdbc:… URL of its driver.",
            field="connection.url",
        )
    plain = url[5:] if url.lower().startswith("jdbc:") else url
    if kind == SQLITE:
        path = plain.partition(":")[2].removeprefix("//")
        return Address(kind=SQLITE, url=url, database=str(Location.of(path).local))
    if kind is None:
        _refuse_secret(_SECRET.search(url) is not None)
        return Address(kind=JDBC, url=url, user=user, password=password)
    try:
        parts, hosts = _parts(plain)
        servers = _servers(hosts, _PORTS[kind])
    except ValueError as error:  # its message contains at most the port
        raise ConfigError(
            problem=f"Invalid database URL: {error}.",
            fix=f"Write {found[1]}://host/database.",
            field="connection.url",
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _refuse_secret(parts.password is not None or _SECRET.search(unquote(plain)) is not None)
    if kind == POSTGRESQL and (unknown := options.keys() - _OPTIONS):
        raise ConfigError(
            problem=f"Unsupported option {min(unknown)!r} in a PostgreSQL URL.",
            fix=f"Use one of: {', '.join(sorted(_OPTIONS))}.",
            field="connection.url",
        )
    user = user or options.pop("user", None) or unquote(parts.username or "") or None
    (host, port), *others = servers
    database = unquote(parts.path.strip("/"))
    # libpq takes missing parts of the URL from its own variables, such as PGHOST.
    if not database or not (host or kind == POSTGRESQL):
        raise ConfigError(
            problem=f"The URL {plain!r} has no {'host' if database else 'database'}.",
            fix=f"Write {found[1]}://host:{_PORTS[kind]}/database.",
            field="connection.url",
        )
    if others and kind != POSTGRESQL:
        raise ConfigError(
            problem=f"The URL {plain!r} has several hosts; only PostgreSQL supports this.",
            fix="Use one host, such as a name that always resolves to the primary.",
            field="connection.url",
        )
    return Address(
        kind=kind,
        url=f"{parts.scheme}://{_authority(servers)}{parts.path}",
        host=host,
        port=port,
        others=tuple(others),
        database=database,
        user=user,
        password=password,
        options=options,
    )


def _parts(url: str) -> tuple[SplitResult, list[str]]:
    """Return a URL with only its first host, as Python cannot parse several, and all hosts."""
    scheme, sign, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    tail = rest[len(authority) :]
    return urlsplit(f"{scheme}{sign}{user}{at}{first}{tail}"), [first, *others]


def _servers(hosts: Iterable[str], port: int) -> list[tuple[str, int]]:
    """Return the hosts and ports of a URL. Raises ValueError for an invalid host or port."""
    found = [urlsplit(f"//{each}") for each in hosts]
    return [
        (each.hostname or "", each.port or (port if each.hostname else 0)) for each in found
    ]


def _authority(servers: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" if port else host for host, port in servers)


def _refuse_secret(is_there: bool) -> None:  # noqa: FBT001 - the only argument
    if is_there:
        raise ConfigError(
            problem="The URL contains a password, which every reader of the connector can see.",
            fix="Remove it from the URL and set connection.password, for example to "
            "${env:DB_PASSWORD}.",
            field="connection.url",
        )


def _paths(url: str) -> list[str]:
    """Return the local files that a URL refers to; empty for an invalid URL."""
    try:
        address = address_of(url)
    except ConfigError:
        return []
    if address.kind == SQLITE:
        return [address.database]
    files = [path for name, path in address.options.items() if _is_file(name, path)]
    is_here = address.kind == POSTGRESQL and not all(host for host, _ in address.servers)
    return [*files, *([_SOCKETS] if is_here else [])]


def _is_file(option: str, value: str) -> bool:
    # libpq uses this name for the system's certificates.
    return option.lower().replace("-", "_") in _FILES and value != "system"


def _check_url(name: str, value: object) -> None:
    if isinstance(value, str):
        try:
            address_of(value)
        except ConfigError as error:
            raise ConfigError(error.problem, fix=error.fix, field=name) from None


class ConnectionSettings(Settings, group="Connection"):
    """The connection to a database."""

    connection_url: str = setting(
        "URL of the database: postgresql://host:5432/database, mysql://host/database, "
        "mariadb://host/database or sqlite:/path/of/file.db, with an optional jdbc: prefix. "
        "For the connector jdbc, the jdbc: URL of any other database. A PostgreSQL URL may "
        "have several hosts, as in postgresql://a,b/database?target_session_attrs=read-write. "
        "Must not contain the password.",
        validator=Lambda(_check_url, "the URL of a database"),
        importance=Importance.HIGH,
        paths=_paths,
    )
    connection_user: str | None = setting(
        "The user name.", default=None, importance=Importance.HIGH
    )
    connection_password: Password | None = setting(
        "The password, for example ${env:DB_PASSWORD}.",
        default=None,
        importance=Importance.HIGH,
    )

    @property
    def address(self) -> Address:
        """The address of the database."""
        password = self.connection_password
        return address_of(
            self.connection_url,
            self.connection_user,
            None if password is None else password.value,
        )


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
