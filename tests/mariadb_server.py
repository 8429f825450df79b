"""A MariaDB server of our own, on a free port of this machine, in a temporary folder."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql
from tests.database_server import TIME_ZONE, DatabaseServer, numbers
from typing_extensions import override


class MariadbServer(DatabaseServer):
    """A server; root needs no password.

    Who comes by its port, as `url` says, may do all but write while the server is read-only.
    """

    title = "MariaDB"
    system_user = "nobody"  # a user that Debian's package of the bare server does not bring
    stop_signal = signal.SIGTERM

    @override
    def url(self, database: str = "") -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{database}"

    @override
    def execute(self, sql: str) -> None:
        self._rows(sql)

    @override
    def initialize(self) -> None:
        rights = self.data.parent / "rights.sql"
        rights.write_text(
            "FLUSH PRIVILEGES;\nREVOKE READ ONLY ADMIN ON *.* FROM root@'127.0.0.1';\n"
        )
        rights.chmod(0o644)
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(
            [
                _program("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={self.data}",
                f"--extra-file={rights}",
                *options,
            ],
            check=True,
            user=self.user,
            cwd=self.data.parent,
            env=self.environment,
            stdout=subprocess.DEVNULL,
        )

    @override
    def _command(self) -> list[str | Path]:
        options = [f"--{key}={value}" for key, value in self._settings().items()]
        return [_program("mariadbd"), "--no-defaults", "--skip-log-bin", *options]

    def _settings(self) -> dict[str, str]:
        return {
            "datadir": str(self.data),
            "bind_address": "127.0.0.1",
            "port": str(self.port),
            "socket": str(self._socket),
            "skip_name_resolve": "on",
            "character_set_server": "utf8mb4",
            "default_time_zone": TIME_ZONE,
            "local_infile": "on",
            "max_allowed_packet": "64M",
            "innodb_buffer_pool_size": "128M",
            # Written at each commit, so that a kill loses nothing, and never to the disk.
            "innodb_flush_log_at_trx_commit": "2",
            "innodb_flush_method": "nosync",
            **self.settings,
        }

    @property
    def _socket(self) -> Path:
        return self.data.parent / "socket"

    def _rows(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        socket = str(self._socket)
        with (
            pymysql.connect(
                unix_socket=socket, user="root", autocommit=True, ssl_disabled=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return cursor.fetchall()

    @override
    def _answers(self) -> bool:
        try:
            connect(self.url()).close()  # by its port: PyMySQL leaks a Unix socket that fails
        except pymysql.OperationalError:
            return False
        return True

    @override
    @contextmanager
    def read_only(self) -> Iterator[None]:
        self.execute("SET GLOBAL read_only = ON")
        try:
            yield
        finally:
            self.execute("SET GLOBAL read_only = OFF")

    @override
    @contextmanager
    def database(self) -> Iterator[str]:
        name = f"test_{next(numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            # A table that a transaction has read cannot be dropped before its end.
            for [connection] in self._rows(
                f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"  # noqa: S608
            ):
                with suppress(pymysql.OperationalError):  # gone by itself meanwhile
                    self.execute(f"KILL {connection}")
            self.execute(f"DROP DATABASE {name}")


def connect(url: str, **options: Any) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """Return a connection to the database of a URL: each statement is committed by itself.

    It may load files of this machine. Options are PyMySQL's; it waits for a silent server
    for ever, unless `read_timeout` says how many seconds. It is not encrypted, as reading the
    machine's certificates takes longer than all else.
    """
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path.removeprefix("/") or None,
        charset="utf8mb4",
        autocommit=True,
        local_infile=True,
        **{"ssl_disabled": True, **options},
    )


def _program(name: str) -> str:
    """Return the path of one of MariaDB's programs, where Debian keeps them or on PATH."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    assert found, f"{name} is missing: make test installs it"
    return found
