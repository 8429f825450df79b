"""A daemon that logs: it keeps its file until it gets SIGHUP, and writes lines in halves.

Arguments: the log, a seed, and a file that gets each line in its order.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

REOPENS_AFTER_SECONDS = 0.15
SECONDS = 60


def main(path: str, seed: str, ledger: str) -> None:
    """Write until SIGTERM comes."""
    chance = random.Random(seed)  # noqa: S311 - it hides nothing
    asked: list[float] = []
    stopped: list[bool] = []
    signal.signal(signal.SIGHUP, lambda *_: asked.append(time.monotonic()))
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    log = os.open(path, flags)
    written = os.open(ledger, flags)
    number = 0
    until = time.monotonic() + SECONDS
    while not stopped and time.monotonic() < until:
        line = f"{number} {'x' * chance.randrange(60)}\n".encode()
        number += 1
        cut = chance.randrange(len(line)) if chance.random() < 0.3 else len(line)
        os.write(log, line[:cut])
        if cut < len(line):
            time.sleep(chance.random() / 50)
            os.write(log, line[cut:])
        os.write(written, line)
        time.sleep(chance.random() / 200)
        if asked and time.monotonic() - asked[0] > REOPENS_AFTER_SECONDS:
            asked.clear()
            os.close(log)
            log = os.open(path, flags)


if __name__ == "__main__":
    main(*sys.argv[1:])
