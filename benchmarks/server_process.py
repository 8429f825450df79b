"""A real server in a process of its own, asked as clients ask it, measured from outside."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import psutil

PATIENCE_SECONDS = 600
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def fail(why: str) -> NoReturn:
    """End the benchmark."""
    raise SystemExit(why)


@dataclass
class Server:
    """A server that runs.

    Args:
        process: Its process; the JVM, the plugin host and Python workers are below it.
        client: Asks its REST API over a connection that is kept.
        began: When the command was given, in seconds since 1970.
    """

    process: subprocess.Popen[str]
    client: httpx2.Client
    began: float
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """How long the answers took that were asked for by ``timed``, by kind."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what is answered; anything but success ends the benchmark."""
        answer = self.client.request(method, path, json=body)
        if answer.status_code >= 300:
            fail(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def timed(self, kind: str, method: str, path: str) -> None:
        """Ask, and keep how long it took."""
        began = time.perf_counter()
        self.ask(method, path)
        self.seconds[kind].append(time.perf_counter() - began)

    def answer_times(self) -> dict[str, dict[str, float]]:
        """Return median, p99 and worst of the answers of each kind, in ms, and forget them."""
        told = {**self.seconds, "all": [s for each in self.seconds.values() for s in each]}
        self.seconds.clear()
        return {
            kind: {
                "count": len(seconds),
                "p50_ms": 1000 * statistics.median(seconds),
                "p99_ms": 1000 * statistics.quantiles(seconds, n=100)[-1],
                "max_ms": 1000 * max(seconds),
            }
            for kind, seconds in told.items()
        }

    def states(self) -> Mapping[str, list[str]]:
        """Return each connector's state and those of its tasks."""
        shown = self.ask("GET", "/connectors?expand=status")
        return {
            name: [
                each["status"]["connector"]["state"],
                *(task["state"] for task in each["status"]["tasks"]),
            ]
            for name, each in shown.items()
        }

    def all_running(self, connectors: int) -> bool:
        """Say whether so many connectors run, each with a task at least; one failed ends it."""
        states = self.states()
        if failed := [name for name, each in states.items() if "FAILED" in each]:
            fail(f"failed: {self.ask('GET', f'/connectors/{failed[0]}/status')}")
        running = [s for s in states.values() if len(s) > 1 and set(s) == {"RUNNING"}]
        return len(running) == connectors

    def processes(self) -> Iterator[psutil.Process]:
        """Yield the server's process and all below it."""
        top = psutil.Process(self.process.pid)
        yield from (top, *top.children(recursive=True))

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far by kind of process, those that have ended included."""
        used: dict[str, float] = defaultdict(float)
        for process in self.processes():
            try:
                times, kind = process.cpu_times(), kind_of(process)
            except psutil.NoSuchProcess:
                continue
            used[kind] += times.user + times.system
            used[kind] += times.children_user + times.children_system
        return dict(used)

    def memory_bytes(self) -> dict[str, int]:
        """Return the proportional set size by kind of process."""
        used: dict[str, int] = defaultdict(int)
        for process in self.processes():
            try:
                told = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                kind = kind_of(process)
            except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                continue
            found = _PSS.search(told)
            used[kind] += 1024 * int(found[1]) if found else 0
        return dict(used)

    def cores_of(self, seconds: float) -> dict[str, float]:
        """Return how many cores were used while so many seconds passed, by kind of process."""
        before, since = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        after, took = self.cpu_seconds(), time.monotonic() - since
        used = {kind: (after[kind] - before.get(kind, 0.0)) / took for kind in after}
        return {**used, "all": sum(used.values())}


def kind_of(process: psutil.Process) -> str:
    """Tell the JVM, the plugin host, Spark's Python workers and the server itself apart."""
    command = " ".join(process.cmdline())
    if "java" in process.name():
        return "JVM"
    if "pyspark.daemon" in command:
        return "Python workers"
    return "plugin host" if "headrace.capture" in command else "server"


@contextmanager
def serving(home: Path, **variables: str) -> Iterator[Server]:
    """Run ``headrace server`` with a home folder; at the end it is stopped, and waited for."""
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "headrace", "server", "--port", "0", "--json"]
    environment = {**os.environ, "HEADRACE_HOME": str(home), **variables}  # noqa: TID251 - the command's own
    # Users have compiled modules; to compile them takes seconds.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.time()
    with (
        (home / "server.err").open("a") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                fail((home / "server.err").read_text())
            with httpx2.Client(base_url=json.loads(line)["url"], timeout=60) as client:
                yield Server(process, client, began)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()


def until(condition: Callable[[], bool], pause: float = 0.2) -> float:
    """Wait until something holds; return when, in seconds since 1970."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            fail("nothing happened any more")
        time.sleep(pause)
    return time.time()
