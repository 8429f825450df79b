"""The parent of warm commands: it has imported what they import, and forks for each.

A command is a process of its own, with the ends, folder and environment of whoever typed it;
only the imports are not done anew, and the JVM is that of `tests.warm.jvm`.
"""

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from tests.warm import jvm

from headrace.plugins import Registry

# Roots of what commands import one by one while they run.
IMPORTS = (
    "deltalake",
    "headrace.acceptance",
    "headrace.cli",
    "headrace.cli.progress",
    "headrace.cli.validate",
    "headrace.cli.failures",
    "headrace.cli.formats",
    "headrace.cli.interrupts",
    "headrace.cli.topic",
    "headrace.client",
    "headrace.runtime.app",
    "headrace.runtime.plugins",
    "headrace.runtime.preview",
    "headrace.rest",
    "headrace.spark.session",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyspark.pandas.typedef",
    "pyspark.sql.functions",
    "rich.table",
    "ruamel.yaml",
)


def serve(place: Path) -> None:
    """Fork for each command that a shim asks for, until there is nobody left to ask."""
    for name in IMPORTS:
        importlib.import_module(name)
    Registry().warm()
    gc.collect()
    gc.freeze()  # or each child would copy the pages that its first collection touches
    keeping = jvm.Keeping(place.parent)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as events:
        door.bind(str(place))
        door.listen()
        events.register(door, selectors.EVENT_READ)
        events.register(read, selectors.EVENT_READ)
        events.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is sys.stdin:
                    return  # the tests are over
                if key.fileobj is door:
                    shim, _ = door.accept()
                    waiting[_fork(shim, keeping)] = shim
                    events.register(shim, selectors.EVENT_READ)
                elif key.fileobj == read:
                    os.read(read, 4096)
                    _answer(waiting, events)
                else:  # a shim was killed, as a command that takes too long is
                    events.unregister(key.fileobj)
                    for pid in [pid for pid, shim in waiting.items() if shim is key.fileobj]:
                        os.kill(pid, signal.SIGKILL)


def _answer(waiting: dict[int, socket.socket], events: selectors.BaseSelector) -> None:
    for pid in list(waiting):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            shim = waiting.pop(pid)
            with suppress(KeyError):
                events.unregister(shim)
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError), shim:
                shim.sendall(bytes([code if code >= 0 else 128 - code]))


def _fork(shim: socket.socket, keeping: jvm.Keeping) -> int:
    length, ends, _, _ = socket.recv_fds(shim, 4, 3)
    left, text = int.from_bytes(length, "big"), b""
    while len(text) < left:
        text += shim.recv(left - len(text))
    pid = os.fork()
    if pid == 0:
        shim.close()
        _run(json.loads(text), ends, keeping)
    for end in ends:
        os.close(end)
    return pid


def _run(asked: dict[str, Any], ends: list[int], keeping: jvm.Keeping) -> NoReturn:
    """Become the command, and end as a program does, but for the modules, which just go."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for end, given in enumerate(ends):
        os.dup2(given, end)
        os.close(given)
    # The parent's were made for other files: whether a line is shown at once depends on it.
    program: Any = sys
    program.stdin = program.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - to the end
    program.stdout = program.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    program.stderr = program.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    given_path = asked["environment"].get("PYTHONPATH", "")
    more = [str(Path(each).absolute()) for each in given_path.split(os.pathsep) if each]
    sys.path[:1] = [str(Path(sys.executable).parent), *more]  # instead of where `tests` is
    sys.argv = ["headrace", *asked["arguments"]]
    keeping.offer()
    main = importlib.import_module("headrace.cli").main
    try:
        sys.exit(main())
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - shown as the interpreter would
        traceback.print_exc()
        code = 1
    getattr(threading, "_shutdown")()  # noqa: B009 - it has no other name
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
