"""Guarantees 2 and 5 of offline jobs whose server is killed at random moments."""

import json
import os
import random
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from deltalake import DeltaTable
from tests.e2e.pairs import Pairs
from tests.waiting import until

SEED = int(os.environ.get("HEADRACE_KILLS_SEED", "7"))
START = datetime(2013, 1, 1, tzinfo=UTC)
MINUTES = 17  # between rows, so that no window is as another


def write_rows(file: Path, windows: int) -> Counter[int]:
    """Write rows with a time each; return how many each hour has."""
    per_hour: Counter[int] = Counter()
    lines = ["id,at"]
    for number in range(windows * 60 // MINUTES * 40):
        at = START + timedelta(minutes=MINUTES * number / 40)
        hour = (at - START) // timedelta(hours=1)
        if hour < windows:
            per_hour[hour] += 1
            lines.append(f"{number},{at.isoformat()}")
    file.write_text("\n".join(lines) + "\n")
    return per_hour


def document(folder: Path, windows: int, **schedule: object) -> dict[str, Any]:
    return {
        "name": "flights",
        "source": {
            "connector": "file",
            "path": str(folder / "in" / "*.csv"),
            "format": "csv",
            "schema": "id LONG, at TIMESTAMP",
            "window.by": "column",
            "window.column": "at",
        },
        "sinks": [{"connector": "delta", "path": str(folder / "out")}],
        "batch.max.rows": "60",  # some windows have more than one batch
        "retry.delay": "1 second",
        "retries": "20",
        "schedule": {
            "every": "1 hour",
            "start": START.replace(tzinfo=None).isoformat(),
            "end": (START + timedelta(hours=windows)).replace(tzinfo=None).isoformat(),
            "overlap": "parallel",
            "parallel": 3,
            **schedule,
        },
    }


class Killing:
    """A server of jobs that is killed again and again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.server = Pairs(folder, 0)
        self.chance = chance
        self.kills = 0

    def post(self, path: str, body: object = None) -> Any:
        answer = httpx2.post(f"{self.server.url}/v1{path}", json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        path = "/v1/jobs/flights/runs?limit=1000"
        while True:
            page = self.server.ask(f"{path}&before={found[-1]['id']}" if found else path)
            found += page["items"]
            if len(page["items"]) < 1000:
                return found

    def left(self) -> int:
        return sum(run["state"] in {"queued", "running"} for run in self.runs())

    def kill_amid(self, process: subprocess.Popen[str], before: int) -> None:
        until(lambda: self.left() < before, self.server.log.read_text)
        self.kill(process)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the server at a random moment, and wait until its processes have ended."""
        time.sleep(self.chance.uniform(0, 2))
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        self.kills += 1
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive

    def check(self, per_hour: Counter[int]) -> None:
        """Each window has one run, its counts balance, and the target has each row once."""
        found: Counter[int] = Counter()
        for run in self.runs():
            bounds = run["boundaries"]
            lower = datetime.fromisoformat(bounds["lower"])
            upper = datetime.fromisoformat(bounds["upper"])
            hours = range(
                (lower - START) // timedelta(hours=1), (upper - START) // timedelta(hours=1)
            )
            assert run["state"] == "succeeded", json.dumps(run)
            expected = sum(per_hour[hour] for hour in hours)
            assert run["counts"]["read"] == run["counts"]["written"] == expected
            found.update(hours)
        assert found == Counter(per_hour.keys())
        ids = DeltaTable(str(self.server.folder / "out")).to_pyarrow_table()["id"].to_pylist()
        assert sorted(ids) == list(range(sum(per_hour.values())))


def run_through_kills(folder: Path, windows: int, kills: int, *, backfill: bool) -> None:
    (folder / "in").mkdir()
    per_hour = write_rows(folder / "in" / "a.csv", windows)
    killing = Killing(folder, random.Random(SEED))  # noqa: S311 - no secret
    begun = False
    while killing.kills < kills:
        with killing.server.serving() as process:
            if not begun:
                made = document(folder, windows, catchup="none" if backfill else "all")
                killing.post("/jobs", made)
                killing.post("/jobs/flights/submit")
                if backfill:
                    until(lambda: killing.server.ask("/v1/jobs/flights")["state"] != "approved")
                    bounds = {
                        "lower": START.isoformat(),
                        "upper": (START + timedelta(hours=windows)).isoformat(),
                    }
                    killing.post("/jobs/flights/backfills", {**bounds, "chunk": 4})
                begun = True
                until(killing.left)
            if not (before := killing.left()):
                break
            killing.kill_amid(process, before)
    assert killing.kills > kills / 2, f"the runs ended after {killing.kills} kills"
    with killing.server.serving():
        until(lambda: not killing.left(), killing.server.log.read_text)
        killing.check(per_hour)


def test_windows_run_once_though_their_server_is_killed(tmp_path: Path) -> None:
    run_through_kills(tmp_path, windows=96, kills=2, backfill=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backfill", [False, True], ids=["schedule", "backfill in chunks"])
def test_windows_of_weeks_run_once_though_their_server_is_killed(
    tmp_path: Path,
    backfill: bool,
) -> None:
    run_through_kills(tmp_path, windows=24 * 28, kills=25, backfill=backfill)
