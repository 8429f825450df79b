"""A PostgreSQL server of our own, on a free port of this machine, in a temporary folder."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.database_server import DatabaseServer, numbers
from typing_extensions import override

STORE = "headrace_store"
"""The database that has the tables of a store, to make others from."""


class PostgresqlServer(DatabaseServer):
    """A server; its superuser needs no password."""

    title = "PostgreSQL"
    system_user = "postgres"  # its packages bring it
    stop_signal = signal.SIGINT

    @override
    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @override
    def execute(self, sql: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql)

    @override
    def initialize(self) -> None:
        options = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"]
        subprocess.run(
            [_program("initdb"), "--pgdata", self.data, *options],
            check=True,
            user=self.user,
            cwd=self.data.parent,
            stdout=subprocess.DEVNULL,
        )

    @override
    def _command(self) -> list[str | Path]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.data.parent),
            "fsync": "off",
            "wal_level": "logical",
            "max_replication_slots": "100",
            "max_wal_senders": "100",
            "timezone": "Asia/Kolkata",  # TIME_ZONE by a name, which clients understand
            **self.settings,
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        return [_program("postgres"), "-D", self.data, *options]

    @contextmanager
    def standby(self) -> Iterator["PostgresqlServer"]:
        """Run a server that follows this one, and only reads, until it is promoted."""
        other = PostgresqlServer(self.data.parent / "standby" / "data", self.user)
        other.data.parent.mkdir()
        if self.user is not None:
            shutil.chown(other.data.parent, self.user)
        source = ["--dbname", self.url(), "--checkpoint=fast", "--no-sync"]
        try:
            subprocess.run(
                [_program("pg_basebackup"), "-D", other.data, "--write-recovery-conf", *source],
                check=True,
                user=self.user,
                cwd=self.data.parent,
            )
            other.start()
            yield other
        finally:
            other.stop()
            shutil.rmtree(other.data.parent)

    @override
    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._set("on")
        try:
            yield
        finally:
            self._set("off")

    def _set(self, read_only: str) -> None:
        self.execute(f"ALTER SYSTEM SET default_transaction_read_only = {read_only}")
        self.execute("SELECT pg_reload_conf()")
        # Each process of the server is told by a signal, one after the other.
        by = time.monotonic() + 30
        while self._shown("default_transaction_read_only") != read_only:
            assert time.monotonic() < by
            time.sleep(0.01)
        time.sleep(0.2)

    def _shown(self, setting: str) -> str:
        with psycopg.connect(self.url()) as connection:
            [value] = connection.execute(f"SHOW {setting}").fetchone() or [""]
            return str(value)

    @override
    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    @override
    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        name = f"test_{next(numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.drop_slots(name)
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def drop_slots(self, database: str) -> None:
        """Drop the replication slots of a database, which could else not be dropped."""
        of_database = f"FROM pg_replication_slots WHERE database = '{database}'"
        self.execute(f"SELECT pg_terminate_backend(active_pid) {of_database} AND active")
        by = time.monotonic() + 30
        while True:
            try:
                self.execute(f"SELECT pg_drop_replication_slot(slot_name) {of_database}")
            except psycopg.errors.ObjectInUse:
                assert time.monotonic() < by
                time.sleep(0.05)
            else:
                return


def _program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, where Debian keeps them or on PATH."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(kept[-1]) if kept else shutil.which(name)
    assert found, f"{name} is missing: make test installs it"
    return found
