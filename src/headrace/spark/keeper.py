"""The process that keeps a JVM between two commands: it holds the JVM's input, and waits.

A script of the standard library alone, so that it starts in a few hundredths of a second and
takes little memory. `keeper.py SOCKET INODE SECONDS SCRATCH LISTENER LIFE LOCK PROCESS`: the
last four are descriptors that it inherits. What the next command is told is on standard input.
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
"""Seconds that the JVM has for it."""


def _main(place: str, inode: str, seconds: str, scratch: str, *descriptors: str) -> None:
    listener, life, lock, process = map(int, descriptors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands of a terminal
    told = sys.stdin.buffer.read()
    with socket.socket(fileno=listener) as waiting:
        ready = select.select([listener, process], [], [], float(seconds))[0]
        with suppress(FileNotFoundError):
            if Path(place).stat().st_ino == int(inode):  # else it is that of a later one
                Path(place).unlink()
        if listener in ready:
            with waiting.accept()[0] as taker:
                socket.send_fds(taker, [told], [life, lock, process])
            return
    os.close(life)
    select.select([process], [], [], TO_END)
    shutil.rmtree(scratch, ignore_errors=True)
    Path(f"{scratch}.lock").unlink(missing_ok=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
