"""A real Airflow 3 on SQLite: its API server, scheduler and DAG processor, on this machine."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from tests.free_port import free_port

VERSION = "3.3.2"
CONSTRAINTS = Path(__file__).with_name("airflow_constraints.txt")
USER, PASSWORD = "headrace", "only of a test"
PATIENCE = 180
GRACE = 30


def installed(cache: Path) -> Path:
    """Return the folder of Airflow's programs; the first call installs them."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = cache / "test-programs" / f"airflow-{VERSION}-{python}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = str(folder / "bin" / "pip")
            words = ["install", "--quiet", f"apache-airflow=={VERSION}", "--constraint"]
            subprocess.run([pip, *words, str(CONSTRAINTS)], check=True)
            (folder / "made").touch()
    return folder / "bin"


@dataclass
class AirflowProcesses:
    """An Airflow that runs, with one user who may do everything."""

    home: Path
    port: int
    token: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    def ask(self, path: str, method: str = "GET") -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.request(method, f"{self.url}/api/v2{path}", headers=headers, timeout=60)

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG; none while there is no such DAG."""
        answer = self.ask(f"/dags/{dag}/dagRuns")
        return list(answer.json()["dag_runs"]) if answer.is_success else []

    def log_in(self) -> bool:
        """Get a token; return whether the server gives one by now."""
        user = {"username": USER, "password": PASSWORD}
        try:
            answer = httpx2.post(f"{self.url}/auth/token", json=user, timeout=60)
        except httpx2.TransportError:
            return False
        if answer.is_success:
            self.token = answer.json()["access_token"]
        return answer.is_success

    def environment(self) -> dict[str, str]:
        passwords = self.home / "passwords.json"
        passwords.write_text(json.dumps({USER: PASSWORD}))
        settings = {
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__WORKERS": "1",
            "API__BASE_URL": self.url,
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "2",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        mine = {"AIRFLOW_HOME": str(self.home), "NO_PROXY": "127.0.0.1"}
        others = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        return others | mine | {f"AIRFLOW__{key}": text for key, text in settings.items()}

    def logs(self) -> str:
        files = sorted(self.home.glob("*.log"))
        return "\n".join(f"{file.name}: {file.read_text()[-4000:]}" for file in files)


@contextmanager
def running(programs: Path, home: Path) -> Iterator[AirflowProcesses]:
    """Run Airflow for as long as this lasts."""
    made = AirflowProcesses(home, free_port())
    made.dags.mkdir(parents=True)
    environment = made.environment()
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"

    def command(*words: str) -> list[str]:
        return [str(programs / "airflow"), *words]

    subprocess.run(
        command("db", "migrate"), env=environment, check=True, capture_output=True, cwd=home
    )
    parts = (["api-server"], ["scheduler", "--skip-serve-logs"], ["dag-processor"])
    with ExitStack() as stack:
        for words in parts:
            log = stack.enter_context((home / f"{words[0]}.log").open("w"))
            process = subprocess.Popen(
                command(*words),
                env=environment,
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(stop, process)
        end = time.monotonic() + PATIENCE
        while not made.log_in():
            assert time.monotonic() < end, made.logs()
            time.sleep(0.5)
        yield made


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started, which are a group of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(GRACE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
