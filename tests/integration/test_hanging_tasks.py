"""Tasks that do not end when they are to, of every gear, on a real server."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.integration import hanging_source
from tests.integration.hanging_source import ROWS
from tests.waiting import until

from headrace.control import Connectors
from headrace.model import TargetState, TaskId
from headrace.runtime.app import Runtime
from headrace.sdk import Position
from headrace.settings import load_settings
from headrace.worker.events import LoggedEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GEARS = ("frame", "split", "capture")
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def states(connectors: Connectors) -> set[str]:
    return {str(task.status.state) for gear in GEARS for task in connectors.view(gear).tasks}


def rows(runtime: Runtime, gear: str) -> list[str]:
    folder = str(runtime.settings.topics_dir / gear)
    if not DeltaTable.is_deltatable(folder):
        return []
    values = DeltaTable(folder).to_pyarrow_table(columns=["value"]).column("value").to_pylist()
    return sorted(str(value["value"] if isinstance(value, dict) else value) for value in values)


def workers() -> int:
    return sum(thread.name.startswith("headrace-worker-") for thread in threading.enumerate())


def test_a_task_that_hangs_is_paused_and_later_moves_each_row_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hosts look for plugins where they are installed, and not in the working directory.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    go = tmp_path / "go"
    settings = load_settings(home=tmp_path / "home", task_shutdown_graceful_timeout=0.5)
    threads = workers() + settings.worker_threads
    with Runtime(settings) as runtime:
        runtime.spark = spark
        with runtime.server(LoggedEvents()) as connectors:
            for gear in GEARS:
                config = {
                    "connector.class": f"{hanging_source.__name__}.Hanging",
                    "gear": gear,
                    "go": f"{go}-{gear}",
                    "topic": gear,
                }
                connectors.create(gear, config, "ann")
                hangs = Path(f"{go}-{gear}.hangs")
                until(hangs.exists, lambda: [connectors.view(gear) for gear in GEARS])
            for gear in GEARS:
                connectors.set_target(gear, TargetState.PAUSED, "ann")
            until(lambda: states(connectors) == {"PAUSED"}, lambda: states(connectors))
            assert runtime.state.leases() == []
            for gear in GEARS:
                Path(f"{go}-{gear}").touch()
            # What hung has gone on; nothing of it counts.
            until(lambda: workers() == threads, threading.enumerate)
            for gear in GEARS:
                assert runtime.state.position(TaskId(gear, 0)) == Position()
                connectors.set_target(gear, TargetState.RUNNING, "ann")
            wanted = {gear: [f"{gear} {n}" for n in range(ROWS)] for gear in GEARS}
            until(
                lambda: all(runtime.state.position(TaskId(gear, 0)) for gear in GEARS),
                lambda: [connectors.view(gear) for gear in GEARS],
            )
            assert {gear: rows(runtime, gear) for gear in GEARS} == wanted
        del runtime.spark
