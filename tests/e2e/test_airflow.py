"""A real Airflow wakes jobs of a real server, and shows how their runs have ended."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from deltalake import DeltaTable
from tests.e2e.airflow_processes import (
    PASSWORD,
    USER,
    AirflowProcesses,
    installed,
    running,
)
from tests.e2e.pairs import HEADRACE
from tests.free_port import free_port

if TYPE_CHECKING:
    from headrace.settings import Settings

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.timeout(1500)]
PATIENCE = 300
DAG = "headrace.minutes"


@pytest.fixture(scope="module")
def programs(session_settings: "Settings") -> Path:
    return installed(session_settings.cache)


@pytest.fixture
def airflow(programs: Path, tmp_path: Path) -> Iterator[AirflowProcesses]:
    with running(programs, tmp_path / "airflow") as made:
        yield made


class Server:
    """A server whose jobs Airflow wakes."""

    def __init__(self, folder: Path, airflow: AirflowProcesses) -> None:
        self.folder, self.airflow, self.port = folder, airflow, free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        engine = {
            "type": "airflow",
            "url": self.airflow.url,
            "username": USER,
            "password": "${env:AIRFLOW_PASSWORD}",
            "dags_folder": str(self.airflow.dags),
            "callback_url": self.url,
        }
        settings = {
            "HEADRACE_HOME": str(self.folder / "home"),
            "HEADRACE_SCHEDULE_ENGINES": json.dumps({"airflow": engine}),
            "AIRFLOW_PASSWORD": PASSWORD,
        }
        words = ["server", "--port", str(self.port), "--no-rocketmq", "--json"]
        with (
            (self.folder / "server.err").open("a") as errors,
            subprocess.Popen(
                [HEADRACE, *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **settings},
            ) as process,
        ):
            try:
                assert process.stdout is not None
                assert process.stdout.readline(), self.log()
                yield
            finally:
                process.terminate()
                process.wait(60)

    def log(self) -> str:
        return (self.folder / "server.err").read_text()[-4000:]

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        answer = httpx2.request(method, f"{self.url}/v1{path}", json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def make(self, job: dict[str, Any]) -> None:
        self.ask("/jobs", "POST", job)
        self.ask(f"/jobs/{job['name']}/submit", "POST")

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            shown = self.ask("/jobs"), self.log(), self.airflow.logs()
            assert time.monotonic() < end, "\n".join(str(each) for each in shown)
            time.sleep(0.5)


def document(folder: Path, name: str, file: str) -> dict[str, Any]:
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5)
    return {
        "name": name,
        "source": {
            "connector": "file",
            "path": str(folder / file),
            "format": "csv",
            "schema": "id LONG, at TIMESTAMP",
            "window.by": "column",
            "window.column": "at",
        },
        "sinks": [{"connector": "delta", "path": str(folder / name)}],
        "retries": 0,
        "schedule": {
            "every": "1 minute",
            "delay": "10 seconds",  # for which Airflow's task has to wait
            "start": start.replace(tzinfo=None).isoformat(),
            "engine": "airflow",
        },
    }


def test_airflow_wakes_a_job_and_knows_how_its_runs_end(
    airflow: AirflowProcesses, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    times = [now + timedelta(seconds=number) for number in range(-600, 1200)]
    rows = "".join(f"{number},{at.isoformat()}\n" for number, at in enumerate(times))
    (tmp_path / "good.csv").write_text(f"id,at\n{rows}")
    (tmp_path / "bad.csv").write_text(f"id,at\nx,{now.isoformat()}\n{rows}")
    server = Server(tmp_path, airflow)
    with server.serving():
        server.make(document(tmp_path, "minutes", "good.csv"))
        server.make(document(tmp_path, "broken", "bad.csv"))
        server.until(
            lambda: all(job["registration"]["registered"] for job in server.ask("/jobs"))
        )

        # Airflow fires, and each of its runs ends as ours.
        server.until(lambda: [run["state"] for run in airflow.runs(DAG)].count("success") > 1)
        ours = server.ask("/jobs/minutes/runs")["items"]
        assert {run["trigger"] for run in ours} == {"callback"}
        assert {run["by"] for run in ours} == {"airflow@127.0.0.1"}
        succeeded = [run for run in ours if run["state"] == "succeeded"]
        assert len(succeeded) >= 6  # those that were due before it was made, too
        assert all(run["counts"]["written"] == 60 for run in succeeded)
        ids = DeltaTable(str(tmp_path / "minutes")).to_pyarrow_table()["id"].to_pylist()
        assert len(ids) == len(set(ids)) >= 60 * len(succeeded)
        server.until(
            lambda: any(run["state"] == "failed" for run in airflow.runs("headrace.broken"))
        )
        shown = server.ask("/jobs/minutes")
        assert shown["state"] == "running"
        assert shown["registration"]["error"] is None
        server.ask("/jobs/broken/suspend", "POST")
        server.until(lambda: airflow.ask("/dags/headrace.broken").json()["is_paused"])

    # The server is away, and the callbacks of meanwhile are lost, or wait for it.
    time.sleep(70)
    with server.serving():
        before = len(succeeded)
        server.until(lambda: server.ask("/jobs/minutes")["runs"]["succeeded"] > before + 1)
        runs = server.ask("/jobs/minutes/runs?limit=1000")["items"]
        bounds = sorted(
            (run["boundaries"]["lower"], run["boundaries"]["upper"]) for run in runs
        )
        assert all(one[1] == other[0] for one, other in pairwise(bounds))

        # What is deleted is gone there, too.
        [file] = airflow.dags.glob("headrace.minutes.py")
        connection = airflow.ask(f"/connections/{DAG}").json()
        assert connection["host"] == server.url
        assert "hrc_" not in file.read_text()
        server.ask("/jobs/minutes/suspend", "POST")
        server.until(lambda: not server.ask("/jobs/minutes")["runs"].get("running"))
        server.ask("/jobs/minutes", "DELETE")
        server.until(lambda: airflow.ask(f"/dags/{DAG}").status_code == 404)
        server.until(lambda: airflow.ask(f"/connections/{DAG}").status_code == 404)
        assert not file.exists()
        assert airflow.ask("/dags/headrace.broken").is_success
