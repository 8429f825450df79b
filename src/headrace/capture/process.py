"""The worker's handle on a host process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, cast

from headrace.capture.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from headrace.capture.channel import Message


class HostProcess:
    """One running host. Any thread may use it.

    Args:
        python: The interpreter of the plugin environment.
        variables: The process's environment variables; None for this process's own.
        receive: Gets this handle and each message, in one thread of the handle, and in another
            each line that the process writes past Python. It must not raise.
        gone: Called once, in that thread, when the process has ended, in whatever way.
    """

    def __init__(
        self,
        python: str = sys.executable,
        *,
        variables: Mapping[str, str] | None = None,
        receive: Callable[[HostProcess, Message], None],
        gone: Callable[[HostProcess], None],
    ) -> None:
        self.ready = False
        """Whether the process came so far as to serve."""
        self.last_words = ""
        """The last line that the process wrote past Python's streams."""
        self._receive = receive
        self._gone = gone
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            self._process = _started(python, theirs, variables)
            undo.pop_all()
        self._channel = Channel(ours)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._threads = [
            threading.Thread(target=self._listen, name=f"host-{self.pid}", daemon=True),
            threading.Thread(target=self._log_output, name=f"host-out-{self.pid}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; it is lost when the process is gone, which ``gone`` tells."""
        with contextlib.suppress(OSError):
            self._channel.send(message)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self, grace: timedelta) -> None:
        """End the process and wait until it and the handle's threads are gone."""
        self.send({"type": "shutdown"})
        try:
            self._process.wait(grace.total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _listen(self) -> None:
        for message in self._channel.messages():
            self.ready = True
            if message["type"] != "ready":
                self._receive(self, message)
        self._channel.hang_up()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it closed the line and lives on
            self._process.wait()
        self._gone(self)

    def _log_output(self) -> None:
        """Log what the process wrote past Python, such as a crash's last words."""
        with self._output as output:
            for line in output:
                text = self.last_words = line.decode(errors="replace").rstrip()
                told = {"level": "warning", "logger": "output", "text": text}
                self._receive(self, {"type": "log", "capture": None, **told})


def _started(
    python: str, line: socket.socket, variables: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a host at the other end of ``line``, which is closed here."""
    with line:
        return subprocess.Popen(  # noqa: S603 - the interpreter is the operator's choice
            [python, "-m", "headrace.capture", str(line.fileno())],
            pass_fds=[line.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if variables is None else dict(variables),
        )
