"""The reuse of a short command's JVM by the next command, which then has Spark at once.

A JVM ends when the other end of its stdin is closed. A command that ends normally passes that
end to a keeper, a small process that hands it over to the next command through a socket, and
then exits. So a JVM has one owner at a time, and still ends at once if its command is killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import pyspark
from py4j.protocol import Py4JError

from headrace.spark import jvm_keeper
from headrace.spark.jvm import Scratch, attach_gateway

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from py4j.java_gateway import JavaGateway

IS_POSSIBLE = hasattr(os, "pidfd_open")
"""Only Linux has process descriptors; a process id may be reused by another process."""
MOST_USES = 20
"""Each context leaks two threads and a megabyte in its JVM."""
_PATIENCE = 5.0
_MOST_BYTES = 65536
_OF_A_CONTEXT = {"spark.app.name"}
"""Settings that differ between commands, and do not affect the JVM."""
_OF_A_SHELL = {"_", "OLDPWD", "SHLVL", "COLUMNS", "LINES"}
"""Variables that shells change."""
_TASK = "Executor task launch worker for task"
_TO_REST = 0.5
_RIGHTS = re.compile(r"^(?:Umask|Uid|Gid|Groups|CapEff):.*$", re.MULTILINE)


@dataclass(frozen=True)
class TakenProcess:
    """The process of a JVM that another command started, with the used part of `Popen`."""

    pid: int
    stdin: IO[bytes]
    descriptor: int
    uses: int
    """The number of commands that used it before."""

    def poll(self) -> int | None:
        """Return None while it is running."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises TimeoutExpired after the timeout."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        return 1 if waiting.poll(None if seconds is None else seconds * 1000) else None


@dataclass(frozen=True)
class Place:
    """Where a JVM waits for a command with the same settings and the same environment."""

    path: Path
    idle: timedelta

    @classmethod
    def of(cls, folder: Path, conf: Mapping[str, str], idle: timedelta) -> Self:
        """Return the place of a JVM that this process would start with `conf`.

        The name is a digest of everything that the JVM and its Python workers inherit, since a
        connector may read any variable, and of the state of the jars.
        """
        settings = {name: value for name, value in conf.items() if name not in _OF_A_CONTEXT}
        environment = os.environ  # noqa: TID251 (compared, and not read)
        variables = {k: v for k, v in environment.items() if k not in _OF_A_SHELL}
        parts = [settings, variables, str(Path.cwd()), sys.executable, pyspark.__version__]
        text = json.dumps([*parts, *_jars(conf), *_inherited()], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(folder / f"java-{name}.socket", idle)

    def take(self) -> tuple[JavaGateway, Scratch] | None:
        """Return the waiting JVM and its scratch folder; None if there is none."""
        found = _taken(self.path)
        if found is None:
            return None
        details, process, lock = found
        gateways: list[JavaGateway] = []

        def attach() -> None:
            with suppress(Py4JError, OSError):
                gateways.append(attach_gateway(details["port"], details["secret"], process))

        attaching = threading.Thread(target=attach, name="headrace-attach", daemon=True)
        attaching.start()
        attaching.join(_PATIENCE)
        if not gateways:  # it does not respond, so nobody can use it
            process.kill()
            attaching.join()
            os.close(lock)
            return None
        return gateways[0], Scratch.held(Path(details["scratch"]), lock)

    def leave(self, gateway: JavaGateway, scratch: Scratch) -> bool:
        """Leave an idle JVM here for the next command; the caller must not use it afterwards.

        All other waiting JVMs are ended, as each takes memory. Returns False, and the caller
        still owns the JVM, if it has reached its maximum number of uses or another command is
        leaving one at the same time.
        """
        jvm, parameters = gateway.proc, gateway.java_parameters
        uses = jvm.uses + 1 if isinstance(jvm, TakenProcess) else 1
        if uses >= MOST_USES:
            return False
        details = {
            "pid": jvm.pid,
            "port": parameters.port,
            "secret": parameters.auth_token,
            "scratch": str(scratch.folder),
            "uses": uses,
        }
        with (self.path.parent / "java.leaving").open("w") as leaving:
            try:
                fcntl.flock(leaving, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            for other in self.path.parent.glob("java-*.socket"):
                end(other)
            self._keep(jvm, scratch, details)
        return True

    def _keep(self, jvm: Any, scratch: Scratch, details: Mapping[str, Any]) -> None:
        ours = isinstance(jvm, subprocess.Popen)
        process = os.pidfd_open(jvm.pid) if ours else jvm.descriptor
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            kept = (listener.fileno(), jvm.stdin.fileno(), scratch.lock, process)
            inode, seconds = self.path.stat().st_ino, self.idle.total_seconds()
            arguments = (self.path, inode, seconds, scratch.folder, *kept)
            keeping = subprocess.Popen(  # noqa: S603 (our own interpreter and script)
                [sys.executable, "-I", "-S", jvm_keeper.__file__, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=kept,
            )
            if keeping.stdin is not None:
                keeping.stdin.write(json.dumps(details).encode())
                keeping.stdin.close()
        # This process may continue, and must not keep the JVM alive.
        jvm.stdin.close()
        os.close(process)


def _jars(conf: Mapping[str, str]) -> list[list[object]]:
    """Return the path, time and size of the JVM's jars, to detect a replaced jar."""
    paths = conf.get("spark.driver.extraClassPath", "").split(os.pathsep)
    states = {Path(path): Path(path).stat() for path in paths if Path(path).is_file()}
    return [[str(path), state.st_mtime_ns, state.st_size] for path, state in states.items()]


def _inherited() -> list[object]:
    """Return what child processes inherit besides variables and the working directory."""
    process = Path("/proc/self")
    rights = _RIGHTS.findall((process / "status").read_text())
    limits = [(process / name).read_text() for name in ("limits", "cgroup")]
    return [rights, *limits, os.nice(0)]


def _taken(path: Path) -> tuple[dict[str, Any], TakenProcess, int] | None:
    """Return what a keeper hands over; None if no keeper waits, or its JVM has ended."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_PATIENCE)
        try:
            asking.connect(str(path))
            answer, descriptors, _, _ = socket.recv_fds(asking, _MOST_BYTES, 3)
        except OSError:  # no keeper waits, or another command was faster
            path.unlink(missing_ok=True)
            return None
    if not descriptors:
        return None
    life, lock, descriptor = descriptors
    details = json.loads(answer)
    process = TakenProcess(details["pid"], os.fdopen(life, "wb"), descriptor, details["uses"])
    if process.poll() is not None:
        os.close(lock)
        return None
    return details, process, lock


def end(path: Path) -> None:
    """End the JVM that waits at a socket, if any."""
    found = _taken(path)
    if found is not None:
        _, process, lock = found
        process.stdin.close()
        os.close(lock)


def is_quiet(gateway: JavaGateway) -> bool:
    """Return whether no Spark task is running in a JVM without a context.

    Tasks of a failed or cancelled job may continue for an unlimited time.
    """
    threads = gateway.jvm.java.lang.Thread
    latest = time.monotonic() + _TO_REST
    while _TASK in str(threads.getAllStackTraces().keySet().toString()):
        if time.monotonic() > latest:
            return False
        time.sleep(0.05)
    return True


def forget(gateway: JavaGateway) -> None:
    """Clear the state in a JVM without a context that would affect the next command."""
    jvm = gateway.jvm
    jvm.SparkSession.clearActiveSession()
    jvm.SparkSession.clearDefaultSession()
    with suppress(TypeError):  # py4j's error for a missing class
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
