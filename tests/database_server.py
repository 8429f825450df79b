"""A database server of our own, on a free port of this machine, in a temporary folder."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import ClassVar, Self

import psutil
from tests.free_port import free_port

SECONDS = 60
TIME_ZONE = "+05:30"
"""Of the servers: neither UTC nor likely to be the machine's, so that mistakes show."""
numbers = count()
"""For the names of databases."""


@dataclass
class DatabaseServer(ABC):
    """A server; who manages it needs no password.

    What was committed is there again after `kill`; only a machine that loses power loses it.

    Args:
        data: Its folder of data.
        user: The user of the machine that it runs as; None for our own.
        settings: The server's own, beside those that every server of its kind has here.
    """

    title: ClassVar[str]
    system_user: ClassVar[str]
    """Who it runs as where we are root, as whom no database server should run."""
    stop_signal: ClassVar[signal.Signals]

    data: Path
    user: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @classmethod
    @contextmanager
    def running(cls, **settings: str) -> Iterator[Self]:
        """Run a server; nothing of it is left afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"headrace-{cls.title.lower()}-"))
        user = cls.system_user if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user)
        server = cls(folder / "data", user, settings)
        try:
            server.initialize()
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder)

    @abstractmethod
    def url(self, database: str = ...) -> str:
        """Return where a database is."""

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run a statement as who manages the server, in no transaction."""

    @abstractmethod
    def database(self) -> AbstractContextManager[str]:
        """Give a new database for as long as this lasts; what is connected then is cut off."""

    @abstractmethod
    def read_only(self) -> AbstractContextManager[None]:
        """Refuse to write for as long as this lasts, in connections that are open too."""

    @abstractmethod
    def initialize(self) -> None:
        """Make the folder of data."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    @property
    def environment(self) -> Mapping[str, str]:
        """That of its programs.

        MariaDB removes temporary files when it starts, also those of others that it finds.
        """
        return {**os.environ, "TMPDIR": str(self.data.parent)}

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = self.data.parent / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command(),
                user=self.user,
                cwd=self.data.parent,
                env=self.environment,
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
            self._process.send_signal(self.stop_signal)
            self._process.wait(SECONDS)
            self._process = None

    def kill(self) -> None:
        """End all of its processes where they are, as `kill -9` does."""
        if self._process is not None:
            # Where the first one goes on, it starts another for each that is gone.
            self._process.send_signal(signal.SIGSTOP)
            everyone = self.processes()
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self._process.wait(SECONDS)
            self._process = None
            # What is killed holds its files and memory until it is gone.
            end = time.monotonic() + SECONDS
            while any(map(_runs, everyone)):
                assert time.monotonic() < end
                time.sleep(0.01)

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
    def killed(self) -> Iterator[None]:
        """Be away for as long as this lasts, after a sudden end."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Say nothing for as long as this lasts, while the kernel goes on answering."""
        assert self._process is not None
        everyone = list(reversed(self.processes()))
        try:
            # PostgreSQL's workers come and go by themselves, so one may have ended by now.
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.suspend()
            yield
        finally:
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.resume()


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
