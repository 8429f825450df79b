"""Commands that start warm: a folder for PATH with a ``headrace`` that need not import."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


@contextmanager
def warm_commands(folder: Path) -> Iterator[Path]:
    """Serve commands; yield the folder that is to be first on PATH.

    They get no signals: what goes on until it is told to end is not for it. The folder's name
    is short, as that of a socket is.
    """
    place, programs = folder / "parent", folder / "bin"
    programs.mkdir()
    script = programs / "headrace"
    shim = Path(__file__).with_name("shim.py")
    # -I and -S: nothing of the environment or of site-packages is looked at.
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{shim}" "{place}" "$@"\n')
    script.chmod(0o755)
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.warm.parent", place], cwd=ROOT, stdin=subprocess.PIPE
    )
    assert parent.stdin is not None
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not place.exists():
            assert parent.poll() is None, "the parent of warm commands has ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield programs
    finally:
        parent.stdin.close()
        parent.wait(PATIENCE_SECONDS)
