"""Temporary files of processes that are gone are removed, and those of others are not."""

import subprocess
import sys
from pathlib import Path

from headrace.spark.jvm import Scratch

MAKE = (
    "import sys; from pathlib import Path; from headrace.spark.jvm import Scratch; "
    "kept = Scratch.make(Path(sys.argv[1])); (kept.folder / 'data').touch(); "
    "print(kept.folder, flush=True); sys.stdin.read()"
)


def begun(root: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    process, folder = begun(tmp_path)
    with process:
        kept = Scratch.make(tmp_path)
        assert (folder / "data").exists()
        process.kill()
        process.wait()
    another = Scratch.make(tmp_path)
    assert not folder.exists()
    assert kept.folder.is_dir()
    kept.remove()
    another.remove()
    assert [*tmp_path.iterdir()] == []
