"""A server as a process of its own, with the processes that it starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

HEADRACE = Path(sys.executable).with_name("headrace")
SECONDS = 240
_OBEDIENT = (
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-all",
)
"""With these root obeys the modes of files, as any user does."""


class ServerGoneError(Exception):
    """The server did not answer."""


@dataclass
class ServedProcess:
    """A server that may be started again and again over one home folder.

    Args:
        home: The home folder.
        log: The file that takes what it prints.
        settings: More of its environment.
    """

    home: Path
    log: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start, and wait until it serves. Raises ServerGoneError when it ends instead."""
        self.kill()  # lets go of one that has ended by itself
        command = [str(HEADRACE), "server", "--port", "0", "--json"]
        obedient = shutil.which("setpriv")
        if os.geteuid() == 0 and obedient:
            command = [obedient, *_OBEDIENT, *command]
        with self.log.open("a") as out:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env={**os.environ, "HEADRACE_HOME": str(self.home), **self.settings},
            )
        assert self.process.stdout is not None
        ending = threading.Timer(SECONDS, self.process.kill)
        ending.start()
        try:
            line = self.process.stdout.readline()
        finally:
            ending.cancel()
        told = json.loads(line or "{}")
        if "url" not in told:  # it has ended, and may have said why
            self.kill()
            raise ServerGoneError(line or self.log.read_text()[-2000:])
        self.url = told["url"]

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def children(self, kind: str) -> list[psutil.Process]:
        """Return its processes of a kind: ``jvm``, ``host``, ``python`` (of Spark)."""
        if self.process is None or self.process.poll() is not None:
            return []
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if _kind(child) == kind:
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server itself."""
        if self.alive:
            assert self.process is not None
            self.process.send_signal(number)

    def kill(self) -> list[str]:
        """Kill it; return what it had started and that did not end by itself in a minute."""
        if self.process is None:
            return []
        children: list[psutil.Process] = []
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
        return self._ended(children)

    def stop(self, seconds: float = SECONDS) -> tuple[int, list[str]]:
        """Ask it to stop; return its exit code and what it left running."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        left = self._ended(children)
        return self.process.returncode, left

    def _ended(self, children: list[psutil.Process]) -> list[str]:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.wait(SECONDS)
        self.process.stdout.close()
        for child in children:  # one that was stopped cannot see that its parent is gone
            try:
                child.send_signal(signal.SIGCONT)
            except psutil.Error:
                continue
        _, alive = psutil.wait_procs(children, timeout=60)
        names = []
        for child in alive:
            try:
                names.append(" ".join(child.cmdline())[:120])
                child.kill()
            except psutil.Error:
                continue
        return names

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 30) -> Any:
        """Make a request. Raises ServerGoneError without an answer, ValueError on refusal."""
        try:
            answer = httpx2.request(method, f"{self.url}{path}", json=body, timeout=seconds)
        except httpx2.HTTPError as error:
            raise ServerGoneError(repr(error)) from error
        if answer.status_code >= 300:
            message = f"{method} {path}: {answer.status_code} {answer.text[:500]}"
            raise ValueError(message)
        return answer.json() if answer.content else None

    def settled(self, method: str, path: str, body: Any = None, seconds: float = 60) -> Any:
        """Make a request that may have to wait, for a rebalance say."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.ask(method, path, body)
            except ValueError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)


def _kind(process: psutil.Process) -> str:
    words = process.cmdline()
    if words and Path(words[0]).name == "java":
        return "jvm"
    if "headrace.capture" in words:
        return "host"
    return "python" if any("pyspark" in word for word in words) else ""
