"""What a finished batch stands for survives a loss of power, in each kind of target.

The connectors of all cases run in one process under strace. From the trace a model knows at
each moment what is on disk for sure. Guarantee 1 is checked when a position is about to move,
and before that when a mark gets its name: a mark on disk whose rows are not would be taken
for a batch that is done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.lost_power.cases import CASES, Case
from tests.lost_power.disk import CALLS, MARKER, Call, Disk, calls

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

_STRACE = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "1", "-e", f"trace={CALLS}"]


@dataclass
class Found:
    """What was seen of one case.

    Args:
        finished: How many batches were.
        decided: How many marks got their names.
        lost: What a loss of power would have taken at one of these moments.
    """

    finished: int = 0
    decided: int = 0
    lost: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run all connectors; return the folder, and the trace of all that they did."""
    folder = tmp_path_factory.mktemp("power")
    trace = folder / "trace"
    script = [sys.executable, "-m", "tests.lost_power.run_cases", str(folder / "run")]
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [*_STRACE, "-o", str(trace), *script],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=1100,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return folder / "run", trace


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_of_a_finished_batch_is_lost_with_the_power(
    case: Case, trace: tuple[Path, Path]
) -> None:
    folder, file = trace
    found = examined(case, folder, list(calls(file)))
    assert found.finished
    assert found.decided
    assert found.lost == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_not_synced_is_seen_to_be_lost(case: Case, trace: tuple[Path, Path]) -> None:
    folder, file = trace
    unsynced = [call for call in calls(file) if not call.name.endswith("sync")]
    assert examined(case, folder, unsynced).lost


def examined(case: Case, folder: Path, done: Sequence[Call]) -> Found:
    """Follow system calls, and look at each moment that counts for a case."""
    final = disk_after(folder, done)
    named = [str(path) for root in case.roots for path in case.named(folder / root)]
    nodes = {final.nodes[path] for path in named if path in final.nodes}
    found, disk = Found(), Disk(str(folder))
    for call in done:
        if MARKER in call.args:
            if call.args.split(MARKER)[1].split('"')[0] == case.name:
                found.finished += 1
                found.lost += _lost(disk, [path for path in named if path in disk.nodes])
            continue
        place = disk.apply(call)
        if place is None or not case.decider.search(place) or not _is_of(case, folder, place):
            continue
        found.decided += 1
        if case.decides_late:
            continue
        before = set(disk.paths_of(nodes))
        if case.staged is not None:
            before |= {
                p for p in disk.nodes if case.staged.search(p) and _is_of(case, folder, p)
            }
        found.lost += _lost(disk, sorted(before - {place}))
        found.lost += [f"{place} got its name first"] if disk.nodes[place].dirty else []
    return found


def disk_after(folder: Path, done: Sequence[Call]) -> Disk:
    """Return the disk as all calls have left it."""
    disk = Disk(str(folder))
    for call in done:
        if MARKER not in call.args:
            disk.apply(call)
    return disk


def _lost(disk: Disk, paths: Sequence[str]) -> list[str]:
    return [lost for path in paths if (lost := disk.lost(path)) is not None]


def _is_of(case: Case, folder: Path, path: str) -> bool:
    if ".draft/" in path:  # a table that is about to be made
        return False
    own = [str(folder / root) for root in case.roots]
    journal = f"{folder}/topics/~captures/{case.name}-"
    return path.startswith((*(f"{root}/" for root in own), journal))
