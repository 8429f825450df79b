"""A PostgreSQL server of our own, on a free port of this machine, in a temporary folder."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil
import psycopg

SECONDS = 60
STORE = "headrace_store"
"""The database that has the tables of a store, to make others from."""
_numbers = count()


def _free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class PostgresqlServer:
    """A server; its superuser needs no password.

    Args:
        data: Its folder of data.
        user: The user of the machine that it runs as; None for our own.
    """

    data: Path
    user: str | None
    port: int = field(default_factory=_free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def url(self, database: str = "postgres") -> str:
        """Return where a database is."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str) -> None:
        """Run a statement that cannot be in a transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql)

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.data.parent),
            "fsync": "off",
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        log = self.data.parent / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", self.data, *options],
                user=self.user,
                cwd=self.data.parent,
                stdout=out,
                stderr=out,
            )
        end = time.monotonic() + SECONDS
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop at once, whoever is connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(SECONDS)
            self._process = None

    def processes(self) -> list[psutil.Process]:
        """Return the server's processes, the first of them last."""
        if self._process is None:
            return []
        first = psutil.Process(self._process.pid)
        return [*first.children(recursive=True), first]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Be away for as long as this lasts."""
        self.stop()
        try:
            yield
        finally:
            self.start()

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

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Say nothing for as long as this lasts, while the kernel goes on answering."""
        assert self._process is not None
        mine = psutil.Process(self._process.pid)
        everyone = [mine, *mine.children(recursive=True)]
        for each in everyone:
            each.suspend()
        try:
            yield
        finally:
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.resume()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuse to write for as long as this lasts, in connections that are open too."""
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

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Give a new database for as long as this lasts; what is connected then is cut off."""
        name = f"test_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running() -> Iterator[PostgresqlServer]:
    """Run a server; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
    # PostgreSQL refuses to run as root; its packages bring a user of their own.
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    server = PostgresqlServer(folder / "data", user)
    options = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"]
    try:
        subprocess.run(
            [_program("initdb"), "--pgdata", server.data, *options],
            check=True,
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, where Debian keeps them or on PATH."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(kept[-1]) if kept else shutil.which(name)
    assert found, f"{name} is missing: make test installs it"
    return found
