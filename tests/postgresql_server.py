"""A PostgreSQL server of our own, on a free port of this machine, in a temporary folder."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

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
    programs: ClassVar[Path | None] = None
    """The folder of its programs; None for those of this machine."""

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
            [self._path("initdb"), "--pgdata", self.data, *options],
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
            "max_prepared_transactions": "10",
            "timezone": "Asia/Kolkata",  # TIME_ZONE by a name, which clients understand
            **self.settings,
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        return [self._path("postgres"), "-D", self.data, *options]

    @contextmanager
    def standby(self, **settings: str) -> Iterator["PostgresqlServer"]:
        """Run a server that follows this one, and only reads, until it is promoted."""
        own = {"primary_conninfo": f"{self.url()}?application_name=standby", **settings}
        other = type(self)(self.data.parent / "standby" / "data", self.user, own)
        other.data.parent.mkdir()
        try:
            self._copy(other.data)
            (other.data / "standby.signal").touch()
            for each in (other.data.parent, other.data, *other.data.rglob("*")):
                if self.user is not None:
                    shutil.chown(each, self.user)
            other.start()
            yield other
        finally:
            other.stop()
            shutil.rmtree(other.data.parent)

    def _copy(self, data: Path) -> None:
        """Copy the folder of data, as a backup does while the server runs."""

        def copy(source: str, target: str) -> None:
            with suppress(FileNotFoundError):  # what it has removed meanwhile
                shutil.copy(source, target)

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('standby', true)")
            shutil.copytree(
                self.data,
                data,
                ignore=shutil.ignore_patterns("postmaster.*"),
                copy_function=copy,
            )
            query = "SELECT labelfile FROM pg_backup_stop(false)"
            [label] = connection.execute(query).fetchone() or [""]
        (data / "backup_label").write_text(label)
        for slot in (data / "pg_replslot").iterdir():  # they are those of the first one
            shutil.rmtree(slot)

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

    def _path(self, name: str) -> str:
        return _program(name) if self.programs is None else str(self.programs / name)


def _program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, where Debian keeps them or on PATH."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(kept[-1]) if kept else shutil.which(name)
    assert found, f"{name} is missing: make test installs it"
    return found
