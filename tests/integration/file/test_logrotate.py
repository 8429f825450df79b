"""logrotate itself rotates a log that a daemon writes: every line comes once, in order."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace.sdk.location import Location
from headrace_plugins.connectors.file.growing import Followed
from headrace_plugins.connectors.file.listing import Listing, Share

LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
WRITER = Path(__file__).with_name("log_writer.py")
WAIT_SECONDS = 2.0
ROTATIONS = 8
CREATE = "create\npostrotate\nkill -HUP {pid}\nendscript"
# What is compressed at once must not be written to any more.
REOPENED = CREATE.replace("endscript", "sleep 0.6\nendscript")
WAYS = {
    "create": CREATE,
    "nocreate": CREATE.replace("create", "nocreate"),
    "delayed": f"{CREATE}\ncompress\ndelaycompress\nsharedscripts",
    "compressed": f"{REOPENED}\ncompress",
    "dated-compressed": f"{REOPENED}\ncompress\ndateext\ndateformat -%Y%m%d-%s",
    "dated": f"{CREATE}\ncompress\ndelaycompress\ndateext\ndateformat -%Y%m%d-%s",
    "copied": "copytruncate",
    "copied-compressed": "copytruncate\ncompress\ndelaycompress",
}
QUICK = {"delayed", "copied-compressed"}
pytestmark = pytest.mark.skipif(
    LOGROTATE is None, reason="scripts/servers.sh installs logrotate"
)


@contextmanager
def writing(log: Path, seed: int, ledger: Path) -> Iterator[subprocess.Popen[bytes]]:
    writer = subprocess.Popen([sys.executable, WRITER, log, str(seed), ledger])
    try:
        while not ledger.exists() or not ledger.stat().st_size:
            time.sleep(0.01)
        yield writer
    finally:
        writer.send_signal(signal.SIGCONT)
        writer.terminate()
        writer.wait(10)


class Reader:
    """Follows the log, and goes on from what it stored when it is stopped."""

    def __init__(self, log: Path) -> None:
        self.log, self.stored, self.found = log, "{}", b""
        self.followed: Followed | None = None

    def read(self) -> None:
        if self.followed is None:
            listing = Listing(Location.of(self.log))
            stored = json.loads(self.stored)
            self.followed = Followed(listing, Share(), stored, rotate_wait=WAIT_SECONDS)
        while (read := self.followed.read(4096, None)) is not None:
            self.found += read[1].lines
            self.stored = json.dumps(self.followed.offsets)

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()
            time.sleep(0.01)

    def stop(self) -> None:
        if self.followed is not None:
            self.followed.close()
        self.followed = None


@pytest.mark.parametrize(
    "way", [way if way in QUICK else pytest.param(way, marks=pytest.mark.long) for way in WAYS]
)
def test_each_line_of_a_rotated_log_comes_once_and_in_order(way: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)  # noqa: S311 - it hides nothing
    chance = random.Random(seed)  # noqa: S311 - it hides nothing
    logs = tmp_path / "logs"
    logs.mkdir()
    log, ledger = logs / "app.log", tmp_path / "ledger"
    copies = "copytruncate" in WAYS[way]
    with writing(log, seed, ledger) as writer:
        config = tmp_path / "logrotate.conf"
        body = WAYS[way].format(pid=writer.pid)
        config.write_text(f"su root root\n{log} {{\nrotate 50\nmissingok\n{body}\n}}\n")
        config.chmod(0o600)
        reader = Reader(log)
        reader.read_for(0.1)
        for _ in range(ROTATIONS):
            if chance.random() < 0.3:
                reader.stop()
            if copies:
                # What is written between the copy and the truncation nobody can keep.
                writer.send_signal(signal.SIGSTOP)
                time.sleep(0.02)
            if "compress" in body and not copies:
                # Who still writes to what is compressed next loses that, whoever reads it.
                wait_reopened(writer.pid, log)
            rotate(config, tmp_path)
            writer.send_signal(signal.SIGCONT)
            time.sleep(chance.random() / 2 + ("%s" in body) * 1.0)
            if reader.followed is not None or chance.random() < 0.5:
                reader.read_for(chance.random() / 2)
        time.sleep(0.3)
    reader.read_for(3 * WAIT_SECONDS + 0.5)
    reader.stop()
    assert reader.found.splitlines() == ledger.read_bytes().splitlines(), f"seed {seed}"


def wait_reopened(pid: int, log: Path) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(FileNotFoundError):  # it is opening it now
            if str(log) in {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}:
                return
        time.sleep(0.02)
    raise TimeoutError(pid)


def rotate(config: Path, folder: Path) -> None:
    assert LOGROTATE is not None
    state = str(folder / "logrotate.state")
    subprocess.run([LOGROTATE, "--force", "--state", state, config], check=True, timeout=30)
