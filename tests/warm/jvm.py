"""A JVM that one warm command after the other uses, instead of a start of its own.

What is saved is what a JVM does at first: loading classes, and compiling what runs often.
Each command has a Spark context of its own in it, with its own settings. A command whose JVM
would be started with other options or other variables of the environment starts its own, and
so does one that finds it in use.
"""

import fcntl
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

PATIENCE = 60.0
# Settings that a context takes when it starts, whatever its JVM was started with.
_OF_A_CONTEXT = (
    "spark.app.name",
    "spark.default.parallelism",
    "spark.local.dir",
    "spark.master",
    "spark.sql.shuffle.partitions",
    "spark.sql.warehouse.dir",
)
_SOCKETS = "spark.python.unix.domain.socket.dir"
"""What answers Python in a JVM keeps its folder: it is the JVM's, and no context's."""
# Of two commands one may be without Java's second compiler.
_QUICK = json.loads(QUICK_JAVA["HEADRACE_SPARK_CONF"]).items()
_COMPILERS = re.compile(r" ?-XX:(?:Tier|ReservedCodeCache)\S+")
_LOG = re.compile(r"-Dheadrace\.log=\S*")
# Variables that Spark and its Python workers take from the JVM's environment, as clients of
# databases do. Ours become settings, which are compared as such.
_OF_A_JVM = re.compile(r"PYTHON|SPARK|JAVA|JDK|HADOOP|^PG|^MYSQL|^TZ$|^LANG$|^LC_|^TMP")
# PySpark sets these in each process that has a context, such as that of the tests.
_OF_A_DRIVER = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}


@dataclass(frozen=True)
class Borrowed:
    """The process of a JVM that is not this process's child."""

    pid: int

    def poll(self) -> int | None:
        """Return None while it lives, as `subprocess.Popen` does."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 1
        return None


@dataclass
class Keeping:
    """The JVM of a parent of commands: started when a command first needs one."""

    folder: Path
    _lease: TextIO | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # The keeper ends when nobody holds the other end any more: the parent, its children.
        self._alive, self._held = os.pipe()
        self._environment = _of_a_jvm(os.environ)
        self._told = self.folder / "jvm.json"

    def offer(self) -> None:
        """Have this process's session use the JVM. Called in a child, before the command."""
        if _of_a_jvm(os.environ) != self._environment:
            return
        session: Any = importlib.import_module("headrace.spark.session")
        start, stop = session.open_gateway, session.close_gateway

        def open_gateway(conf: dict[str, str], *, log: Path) -> "JavaGateway":
            gateway: JavaGateway = self._borrowed(conf) or start(conf, log=log)
            return gateway

        def close_gateway(gateway: "JavaGateway", *patience: timedelta) -> None:
            if isinstance(gateway.proc, Borrowed):
                self._give_back(gateway)
            else:
                stop(gateway, *patience)

        session.open_gateway, session.close_gateway = open_gateway, close_gateway

    def _borrowed(self, conf: dict[str, str]) -> "JavaGateway | None":
        """Return a gateway to the JVM; None if it is in use or would be another.

        The context is made with `conf` then, which gets the JVM's folder of sockets.
        """
        lease = (self.folder / "jvm.lock").open("w")
        with suppress(BlockingIOError):
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lease = lease  # until this process ends
            told = self._read() or self._start(conf)
            if told is not None and told["conf"] == _of_a_start(conf):
                self._told.write_text(
                    json.dumps(told | {"used": True, "uses": told["uses"] + 1})
                )
                if _SOCKETS in conf:
                    conf[_SOCKETS] = str(self.folder)
                return _attached(told)
        lease.close()
        return None

    def _read(self) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            told: dict[str, Any] = json.loads(self._told.read_text())
            if not told["used"] and Borrowed(told["pid"]).poll() is None:
                return told
            # A command that was killed left its context in it, which nobody is to have.
            with suppress(ProcessLookupError):
                os.kill(told["pid"], signal.SIGKILL)
            self._told.unlink()
        return None

    def _start(self, conf: Mapping[str, str]) -> dict[str, Any] | None:
        log = f"-Dheadrace.log={self.folder / 'spark.log'}"
        ours = {name: _LOG.sub(log, value) for name, value in conf.items()}
        ours |= {_SOCKETS: str(self.folder)} if _SOCKETS in conf else {}
        (self.folder / "conf.json").write_text(json.dumps(ours))
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.warm.jvm", self.folder],
            stdin=self._alive,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        end = time.monotonic() + PATIENCE
        while not self._told.exists() and keeper.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        keeper.returncode = 0  # it is to go on without us
        return self._read()

    def _give_back(self, gateway: "JavaGateway") -> None:
        from pyspark.core.context import SparkContext

        from headrace.spark.jvm_reuse import forget

        context = SparkContext._active_spark_context
        if context is not None and context._jsc is not None:
            context._jsc.stop()
        forget(gateway)
        told = json.loads(self._told.read_text())
        self._told.write_text(json.dumps(told | {"used": False}))
        gateway.close()


def keep(folder: Path) -> None:
    """Start the JVM, tell where it is, and stop it when stdin ends."""
    from headrace.spark.jvm import close_gateway, open_gateway

    conf = json.loads((folder / "conf.json").read_text())
    gateway = open_gateway(conf, log=folder / "jvm.log")
    parameters = gateway.java_parameters
    told = {
        "conf": _of_a_start(conf),
        "pid": gateway.proc.pid,
        "port": parameters.port,
        "secret": parameters.auth_token,
        "used": False,
        "uses": 0,
    }
    new = folder / "jvm.new"
    new.write_text(json.dumps(told))
    new.rename(folder / "jvm.json")
    while gateway.proc.poll() is None and not select.select([sys.stdin], [], [], 1)[0]:
        pass
    close_gateway(gateway)


def _attached(told: Mapping[str, Any]) -> "JavaGateway":
    from headrace.spark.jvm import attach_gateway

    gateway = attach_gateway(told["port"], told["secret"], Borrowed(told["pid"]))
    # Spark's paths begin at the folder in which its JVM was started.
    gateway.jvm.java.lang.System.setProperty("user.dir", str(Path.cwd()))
    return gateway


def _of_a_jvm(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if _OF_A_JVM.search(name)
        and name not in _OF_A_DRIVER
        and not name.startswith("HEADRACE_")
    }


def _of_a_start(conf: Mapping[str, str]) -> dict[str, str]:
    rest = {
        name: value
        for name, value in conf.items()
        if name not in {*_OF_A_CONTEXT, _SOCKETS} and (name, value) not in _QUICK
    }
    return {name: _COMPILERS.sub("", _LOG.sub("", value)) for name, value in rest.items()}


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
