"""The process that keeps a JVM alive between two commands: it holds the JVM's stdin open.

A script that uses only the standard library, so that it starts in a few hundredths of a second
and takes little memory. Arguments: `SOCKET INODE SECONDS SCRATCH LISTENER LIFE LOCK PROCESS`;
the last four are inherited descriptors. The message for the next command is on standard input.
"""

import os
import select
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

__all__: list[str] = []

TO_END = 10.0
"""The timeout for the JVM to end, in seconds."""


class _EndedError(Exception):
    """A signal asks for the end."""


def _end(*_: object) -> None:
    raise _EndedError


def _main(place: str, inode: str, seconds: str, scratch: str, *descriptors: str) -> None:
    listener, life, lock, process = map(int, descriptors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands of a terminal
    details = sys.stdin.buffer.read()
    with socket.socket(fileno=listener) as waiting:
        ready: list[int] = []
        with suppress(_EndedError):
            for each in (signal.SIGHUP, signal.SIGTERM):  # the terminal was closed
                signal.signal(each, _end)
            ready = select.select([listener, process], [], [], float(seconds))[0]
        with suppress(FileNotFoundError):
            if Path(place).stat().st_ino == int(inode):  # otherwise it is a later keeper's
                Path(place).unlink()
        if listener in ready:
            with waiting.accept()[0] as taker:
                socket.send_fds(taker, [details], [life, lock, process])
            return
    os.close(life)
    select.select([process], [], [], TO_END)
    shutil.rmtree(scratch, ignore_errors=True)
    Path(f"{scratch}.lock").unlink(missing_ok=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
