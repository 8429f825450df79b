"""Guarantees 1 and 2 for real: a process killed at random moments loses and doubles nothing."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

pytestmark = pytest.mark.usefixtures("quick_java")

DEFINITION = """
name: orders
source:
  connector: datagen
  rows: {rows}
  rate: {rate}
  schema: "id bigint, name string, amount decimal(12,2), at timestamp"
topic: orders
batch.max.rows: 20000
sinks:
  - connector: delta
    path: {target}
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headrace", "--home", str(folder / "home"), "run"]
    log = (folder / "run.log").open("ab")
    with log:
        return subprocess.Popen(
            [*command, str(folder / "orders.yaml"), "--json"], stdout=log, stderr=log
        )


def kill_at_random_moments(folder: Path, kills: int, seed: int) -> int:
    """Return in how many of the runs data had moved before the kill."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    log = folder / "run.log"
    moving = 0
    for _ in range(kills):
        before = log.stat().st_size if log.exists() else 0
        process = start(folder)
        # Most kills come while data moves, some while Spark or a task is still starting.
        deadline = time.monotonic() + 90
        wait_for_data = chance.random() < 0.85
        if not wait_for_data:
            time.sleep(chance.uniform(0.1, 10))
        while wait_for_data and time.monotonic() < deadline and process.poll() is None:
            if b"batch" in log.read_bytes()[before:]:
                moving += 1
                time.sleep(chance.uniform(0, 4))
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return moving


def check_kills(
    folder: Path, *, rows: int, rate: int, kills: int, seed: int, more: str = ""
) -> None:
    target = folder / "target"
    definition = DEFINITION.format(rows=rows, rate=rate, target=target) + more
    (folder / "orders.yaml").write_text(definition)
    moving = kill_at_random_moments(folder, kills, seed)
    last = start(folder)
    assert last.wait(timeout=900) == 0, (folder / "run.log").read_text()[-3000:]
    assert moving >= kills // 2
    ids = DeltaTable(target).to_pyarrow_table(columns=["id"]).column("id")
    found = len(ids), pc.count_distinct(ids).as_py(), pc.sum(ids).as_py()
    assert found == (rows, rows, rows * (rows - 1) // 2)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_killed_flow_through_a_topic_delivers_each_row_once(tmp_path: Path) -> None:
    check_kills(tmp_path, rows=200_000, rate=20_000, kills=4, seed=1)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_kills_of_a_flow_of_a_million_rows_deliver_each_row_once(tmp_path: Path) -> None:
    check_kills(tmp_path, rows=1_000_000, rate=16_000, kills=20, seed=20)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_state_of_a_killed_flow_takes_no_row_for_its_own_duplicate(tmp_path: Path) -> None:
    more = "transforms:\n  - {type: Deduplicate, key.fields: id}\n"
    check_kills(tmp_path, rows=200_000, rate=20_000, kills=4, seed=3, more=more)
