"""Airflow 3 as an external scheduler: a generated DAG per job, and Airflow's REST API."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.model import Interval, Once
from headrace.scheduler.cron_fields import cron_of
from headrace.scheduler.external_scheduler import (
    EngineRefusedError,
    EngineSettings,
    HttpEngine,
    RegistrationPendingError,
    WakeUp,
    json_of,
)
from headrace.sdk import ConfigError
from headrace.sdk.config import Password, setting

if TYPE_CHECKING:
    import httpx2

    from headrace.model import Schedule

_LONGEST_NAME = 150
_WITH_DIGEST = re.compile(r"-[0-9a-f]{8}$")
_GONE = {HTTPStatus.NOT_FOUND}
_MARK = '"""Made by Headrace, which replaces and deletes this file: do not edit it."""\n'


class AirflowSettings(EngineSettings):
    """Settings of Airflow."""

    username: str = setting("A user that may edit DAGs and connections.")
    password: Password = setting("The user's password.")
    dags_folder: str = setting(
        "Airflow's DAG folder, as a path on this server. The folder may be shared with "
        "Airflow's machines or copied to them; its files contain no secrets.",
        key="dags_folder",
    )


class Airflow(HttpEngine):
    """A DAG wakes a job at the end of each of its windows, and waits for the run's end.

    Each job has a DAG file without secrets, a connection with the address and the token, and
    Airflow's own data about the DAG.
    """

    settings: AirflowSettings

    def __init__(self, settings: AirflowSettings) -> None:
        super().__init__(settings)
        self._token: str | None = None

    @override
    @classmethod
    def check(cls, schedule: Schedule) -> None:
        _timing(schedule)

    @override
    def start(self) -> None:
        self._log_in()

    @override
    def register(self, wake: WakeUp) -> None:
        self._write(wake)
        self._connect(wake)
        self._await_dag(wake)

    @override
    def update(self, wake: WakeUp) -> None:
        self.register(wake)
        paused = {"is_paused": not wake.active}
        # A DAG that does not exist yet gets this state from its file.
        self._send("PATCH", f"/dags/{self._id(wake.job)}", accepted=_GONE, json=paused)

    @override
    def unregister(self, job: str) -> None:
        id_ = self._id(job)
        # Delete the file first, or Airflow reads it again.
        if self._is_mine(file := self._file(job)):
            file.unlink(missing_ok=True)
        self._send("DELETE", f"/dags/{id_}", accepted=_GONE)
        self._send("DELETE", f"/connections/{id_}", accepted=_GONE)

    def _id(self, job: str) -> str:
        """Return the id of the DAG and the connection of a job."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", job)
        # A name that looks as if it had a digest gets one too, so that ids are unique.
        if name != job or len(name) > _LONGEST_NAME or _WITH_DIGEST.search(name):
            digest = hashlib.sha256(job.encode()).hexdigest()[:8]
            name = f"{name[:_LONGEST_NAME]}-{digest}"
        return f"{self.settings.prefix}.{name}"

    def _file(self, job: str) -> Path:
        return Path(self.settings.dags_folder) / f"{self._id(job)}.py"

    def _is_mine(self, file: Path) -> bool:
        """Return whether we may write a file: it does not exist, or we have created it."""
        try:
            return file.read_text(encoding="utf-8").startswith(_MARK)
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as error:
            raise _unusable(file, error) from None

    def _write(self, wake: WakeUp) -> None:
        text, file = dag_file(self._id(wake.job), wake), self._file(wake.job)
        if not self._is_mine(file):
            problem = f"{file} was not made by Headrace."
            raise EngineRefusedError(problem, fix="Move the file, or set another prefix.")
        new = file.with_name(f".{file.name}.{os.getpid()}.new")
        try:
            if file.exists() and file.read_text(encoding="utf-8") == text:
                return
            new.write_text(text, encoding="utf-8")
            new.replace(file)  # atomic: Airflow reads the old or the new file
        except OSError as error:
            raise _unusable(file, error) from None

    def _connect(self, wake: WakeUp) -> None:
        id_ = self._id(wake.job)
        body = {
            "connection_id": id_,
            "conn_type": "http",
            "description": f"Wakes job {wake.job} of Headrace.",
            "host": self.settings.callback_url.rstrip("/"),
            "password": wake.token,
        }
        place = f"/connections/{id_}"
        answer = self._send("PATCH", place, accepted=_GONE, json=body)
        if answer.status_code in _GONE:  # another server may create it at the same time
            conflict = {HTTPStatus.CONFLICT}
            self._send("POST", "/connections", accepted=conflict, json=body)

    def _await_dag(self, wake: WakeUp) -> None:
        answer = self._send("GET", f"/dags/{self._id(wake.job)}", accepted=_GONE)
        if answer.is_success and not json_of(answer).get("is_stale"):
            return
        if not wake.active:
            return  # the DAG is created paused
        file = self._file(wake.job).name
        found = self._send("GET", "/importErrors", params={"filename_pattern": file})
        for each in json_of(found).get("import_errors", ()):
            *_, last = str(each.get("stack_trace", "")).strip().splitlines() or [""]
            problem = f"Airflow cannot read {file}: {last}"
            raise EngineRefusedError(problem, fix="See Airflow's list of import errors.")
        problem = f"Airflow has not read {file} yet."
        fix = "Wait: Airflow checks for files every [dag_processor] refresh_interval seconds."
        raise RegistrationPendingError(problem, fix=fix)

    def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        denied, accepted = {HTTPStatus.UNAUTHORIZED}, request.pop("accepted", frozenset())

        def sent(accepted: set[HTTPStatus]) -> httpx2.Response:
            token = self._token or self._log_in()
            headers = {"Authorization": f"Bearer {token}"}
            path_ = f"/api/v2{path}"
            return self.request(method, path_, accepted=accepted, headers=headers, **request)

        answer = sent(accepted | denied)
        if answer.status_code not in denied:
            return answer
        self._token = None  # it has expired
        return sent(accepted)

    def _log_in(self) -> str:
        user = {"username": self.settings.username, "password": self.settings.password.value}
        answer = json_of(self.request("POST", "/auth/token", json=user))
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            problem = f"{self.settings.url}/auth/token returned no token."
            raise EngineRefusedError(problem, fix="Set url to the address of Airflow 3.")
        self._token = token
        return token


def _unusable(file: Path, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else type(error).__name__
    return ConfigError(
        problem=f"{file} cannot be read or written: {why}.",
        fix="Set dags_folder to Airflow's DAG folder, and let this server write to it.",
        field="dags_folder",
    )


def _timing(schedule: Schedule) -> dict[str, Any]:
    """Return when a DAG runs, in the format of its file. Raises ConfigError.

    The callback requests a window by the time at which the DAG runs, so the DAG only has to run
    once after the end of each window.
    """
    if isinstance(schedule.rhythm, Once):
        assert schedule.end is not None
        end = schedule.local(schedule.end) + schedule.delay
        return {"start": end.astimezone(UTC).isoformat(), "once": True}
    start = schedule.local(schedule.start).astimezone(UTC)
    times = {"start": start.isoformat()}
    if schedule.end is not None:
        times["end"] = schedule.local(schedule.end).astimezone(UTC).isoformat()
    if (cron := cron_of(schedule)) is not None:
        return {**times, "cron": cron.unix, "zone": cron.zone}
    if isinstance(schedule.rhythm, Interval) and (length := schedule.rhythm.length) is not None:
        return {**times, "seconds": length.total_seconds()}
    raise ConfigError(
        problem="Airflow cannot run a DAG at the ends of these windows.",
        fix="Use cron, or an interval of one day or week, of months that divide a year, or of "
        "hours, minutes or seconds; one of months must start before the 29th.",
        field="schedule.every",
    )


def dag_file(id_: str, wake: WakeUp) -> str:
    """Return the file of a job's DAG."""
    job = {
        "id": id_,
        "job": wake.job,
        "path": wake.path,
        "paused": not wake.active,
        "version": wake.version,
        **_timing(wake.schedule),
    }
    text = json.dumps(job, indent=2, ensure_ascii=True)
    return _DAG.replace("@MARK@", _MARK).replace("@JOB@", repr(text))


_DAG = '''@MARK@
import json
from datetime import datetime, timedelta, timezone

import httpx
from airflow.sdk import DAG, BaseSensorOperator, Connection

try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:
    from airflow.timetables.interval import CronDataIntervalTimetable
try:
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowRescheduleException,
        AirflowSkipException,
    )
except ImportError:
    from airflow.exceptions import (
        AirflowFailException,
        AirflowRescheduleException,
        AirflowSkipException,
    )

JOB = json.loads(@JOB@)
WAIT_SECONDS = 20  # for which a call waits for the end of a run


class HeadraceRun(BaseSensorOperator):
    """Asks for the run of a window, and waits for its end without holding a slot."""

    def poke(self, context):
        connection = Connection.get(JOB["id"])
        by = context.get("data_interval_end") or context["dag_run"].run_after
        try:
            answer = httpx.post(
                connection.host + JOB["path"],
                json={"upper": by.isoformat()},
                headers={
                    "Authorization": f"Bearer {connection.password}",
                    "Prefer": f"wait={WAIT_SECONDS}",
                },
                timeout=60,
            )
        except httpx.TransportError as error:
            self.log.warning("Headrace does not answer: %s", type(error).__name__)
            return False
        wait = answer.headers.get("Retry-After", "")
        if answer.status_code == 409 and wait.isdecimal():
            self.log.info("Not due yet: %s", answer.text)
            then = datetime.now(timezone.utc) + timedelta(seconds=int(wait))
            raise AirflowRescheduleException(then)
        if answer.status_code in (400, 401, 403, 404, 422):
            raise AirflowFailException(f"Headrace refuses: {answer.text}")
        if answer.status_code != 200:
            self.log.warning("Headrace answers %s: %s", answer.status_code, answer.text)
            return False
        run = answer.json()
        self.log.info("Run %s is %s: %s", run["id"], run["state"], run["counts"])
        if run["state"] in ("queued", "running"):
            return False
        if run["state"] == "skipped":
            raise AirflowSkipException(run["error"])
        if run["state"] != "succeeded":
            raise AirflowFailException(
                f"Run {run['id']} is {run['state']}: {run['error']}"
            )
        return True


def schedule():
    if "cron" in JOB:
        return CronDataIntervalTimetable(JOB["cron"], timezone=JOB["zone"])
    return "@once" if JOB.get("once") else timedelta(seconds=JOB["seconds"])


with DAG(
    JOB["id"],
    description="Wakes job %s of Headrace." % JOB["job"],
    schedule=schedule(),
    start_date=datetime.fromisoformat(JOB["start"]),
    end_date=datetime.fromisoformat(JOB["end"]) if "end" in JOB else None,
    catchup=False,  # Headrace makes the runs of all windows that are due
    max_active_runs=16,  # and says how many run side by side
    is_paused_upon_creation=JOB["paused"],
    tags=["headrace"],
):
    # Headrace tries runs again that fail; here only calls are that were not answered.
    HeadraceRun(task_id="run", mode="reschedule", poke_interval=30)
'''
