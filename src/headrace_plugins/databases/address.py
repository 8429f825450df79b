"""Where a database is, from the keys that Kafka Connect's JDBC connectors have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Lambda, Password, Settings, setting
from headrace.sdk.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
"""A secret in a URL: as an option, behind the user, or as Oracle's URLs have it."""
_OPTIONS = {
    *("application_name", "channel_binding", "connect_timeout", "gssencmode", "options"),
    *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval"),
    *("load_balance_hosts", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation"),
    *("sslrootcert", "sslsni", "ssl_max_protocol_version", "ssl_min_protocol_version"),
    *("target_session_attrs", "tcp_user_timeout", "user"),
}
"""libpq's options that a URL may have: others lead elsewhere than it says, as hostaddr does, or
to passwords and files of the machine."""
_FILES = {"sslcert", "sslcrl", "sslkey", "sslrootcert", "ssl_ca", "ssl_cert", "ssl_key"}
_SOCKETS = "/var/run/postgresql"
"""Where a server of PostgreSQL is whose host nothing names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a database is, and how one logs in.

    Args:
        kind: The kind of database; JDBC for one that only its JDBC driver speaks.
        url: The URL as it was configured, without a user and a password.
        host: The server's name; empty for a file, and where the driver knows it.
        others: The servers of PostgreSQL that are tried next, as libpq does.
        database: The database's name on the server, or the path of the file.
        options: What the URL says behind its question mark.
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
        """What a person calls it; never with a secret."""
        if self.kind == SQLITE:
            return self.database
        if self.kind == JDBC:
            return self.url.partition("?")[0].partition(";")[0]
        return f"{self.kind}://{_authority(self.servers)}/{self.database}"

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The names and ports of the servers, in the order in which they are tried."""
        return ((self.host, self.port), *self.others)

    @property
    def marked(self) -> str:
        """What the database is called in names of marks, which it keeps itself.

        Not by its host, which has several names, or another after a fail-over, while a batch is
        in doubt; nor by what else the URL says of the way there.
        """
        if self.kind != JDBC:
            return f"{self.kind} {self.database}"
        place = _AUTHORITY.sub("//", self.title)
        found = _DATABASE.search(self.url)  # which is an option of SQL Server
        return f"{place} {found[1]}" if found else place


def address_of(url: str, user: str | None = None, password: str | None = None) -> Address:
    """Return the address that a URL stands for.

    It takes ``postgresql://host/db``, ``mysql://…``, ``mariadb://…`` and ``sqlite:path``, each
    with or without ``jdbc:`` before it, and any other ``jdbc:…`` for its driver.

    Raises ConfigError: it is none of these, or holds a password.
    """
    found = _SCHEME.match(url)
    if found is None:
        raise ConfigError(
            problem=f"Invalid URL {url.rpartition('@')[2]!r}: it names no kind of database.",
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
    except ValueError as error:  # which shows no more than the port
        raise ConfigError(
            problem=f"Invalid URL of a database: {error}.",
            fix=f"Write {found[1]}://host/database.",
            field="connection.url",
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _refuse_secret(parts.password is not None or _SECRET.search(unquote(plain)) is not None)
    if kind == POSTGRESQL and (unknown := options.keys() - _OPTIONS):
        raise ConfigError(
            problem=f"A URL of PostgreSQL may not have the option {min(unknown)!r}.",
            fix=f"Use one of: {', '.join(sorted(_OPTIONS))}.",
            field="connection.url",
        )
    user = user or options.pop("user", None) or unquote(parts.username or "") or None
    (host, port), *others = servers
    database = unquote(parts.path.strip("/"))
    # What the URL leaves out libpq takes from its own variables, such as PGHOST.
    if not database or not (host or kind == POSTGRESQL):
        raise ConfigError(
            problem=f"The URL {plain!r} names no {'host' if database else 'database'}.",
            fix=f"Write {found[1]}://host:{_PORTS[kind]}/database.",
            field="connection.url",
        )
    if others and kind != POSTGRESQL:
        raise ConfigError(
            problem=f"The URL {plain!r} names several hosts, as those of PostgreSQL only may.",
            fix="Name one host, such as a name that follows the primary.",
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
    """Return a URL with its first host alone, as Python takes no more, and all hosts."""
    scheme, sign, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    tail = rest[len(authority) :]
    return urlsplit(f"{scheme}{sign}{user}{at}{first}{tail}"), [first, *others]


def _servers(hosts: Iterable[str], port: int) -> list[tuple[str, int]]:
    """Return the hosts and ports of a URL. Raises ValueError for what is none."""
    found = [urlsplit(f"//{each}") for each in hosts]
    return [
        (each.hostname or "", each.port or (port if each.hostname else 0)) for each in found
    ]


def _authority(servers: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" if port else host for host, port in servers)


def _refuse_secret(is_there: bool) -> None:  # noqa: FBT001 - it is the whole question
    if is_there:
        raise ConfigError(
            problem="The URL holds a password, which everyone sees who may see the connector.",
            fix="Take it out of the URL and set connection.password, such as to "
            "${env:DB_PASSWORD}.",
            field="connection.url",
        )


def _paths(url: str) -> list[str]:
    """Return the files of this machine that a URL leads to; none if it is no good one."""
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
    # libpq calls the system's certificates so.
    return option.lower().replace("-", "_") in _FILES and value != "system"


def _check_url(name: str, value: object) -> None:
    if isinstance(value, str):
        try:
            address_of(value)
        except ConfigError as error:
            raise ConfigError(error.problem, fix=error.fix, field=name) from None


class ConnectionSettings(Settings, group="Connection"):
    """How a database is reached."""

    connection_url: str = setting(
        "Where the database is: postgresql://host:5432/database, mysql://host/database, "
        "mariadb://host/database or sqlite:/path/of/file.db, with jdbc: before it too; or for "
        "the connector jdbc the jdbc: URL of any other database. That of PostgreSQL may name "
        "several hosts, as postgresql://a,b/database?target_session_attrs=read-write. The "
        "password does not belong here.",
        validator=Lambda(_check_url, "the URL of a database"),
        importance=Importance.HIGH,
        paths=_paths,
    )
    connection_user: str | None = setting(
        "Who logs in.", default=None, importance=Importance.HIGH
    )
    connection_password: Password | None = setting(
        "What to log in with, such as ${env:DB_PASSWORD}.",
        default=None,
        importance=Importance.HIGH,
    )

    @property
    def address(self) -> Address:
        """Where the database is."""
        password = self.connection_password
        return address_of(
            self.connection_url,
            self.connection_user,
            None if password is None else password.value,
        )
