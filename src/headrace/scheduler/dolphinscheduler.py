"""DolphinScheduler as an external scheduler: a workflow with one HTTP task per job."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from typing_extensions import override

from headrace.model import Once
from headrace.scheduler.cron_fields import cron_of
from headrace.scheduler.external_scheduler import (
    EngineRefusedError,
    EngineSettings,
    HttpEngine,
    WakeUp,
    json_of,
)
from headrace.sdk import ConfigError
from headrace.sdk.config import Password, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model import Schedule

_TIME = "%Y-%m-%d %H:%M:%S"
_NO_END = timedelta(days=36525)
_ANSWER_MS = 60_000
"""The task's timeout for a part of the response; a waiting server sends one every 5 s."""
_WAIT_SECONDS = 86400
_RETRIES = 5
"""How often the task retries, one minute apart, without a response or if the run has not
succeeded: it cannot distinguish the two."""


class Definitions(StrEnum):
    """The name for a workflow in DolphinScheduler's API."""

    WORKFLOW = "workflow"
    PROCESS = "process"


class DolphinSettings(EngineSettings):
    """Settings of DolphinScheduler."""

    token: Password = setting("The token of a user, from DolphinScheduler's Security page.")
    project: str = setting(
        "The project, which is created if it does not exist, and never deleted.",
        default="headrace",
    )
    tenant: str = setting("The tenant that runs the task.", default="default")
    worker_group: str = setting(
        "The worker group that runs the task.", default="default", key="worker_group"
    )
    definitions: Definitions = setting(
        "The name for a workflow in the API: `workflow` from 3.3 on, `process` in 3.1 and 3.2.",
        default=Definitions.WORKFLOW,
    )


class DolphinScheduler(HttpEngine):
    """A scheduled workflow wakes a job at the end of each of its windows.

    Its only task sends a request with the token in a header, and waits for the response, which
    is sent when the run ends.
    """

    settings: DolphinSettings

    def __init__(self, settings: DolphinSettings) -> None:
        super().__init__(settings)
        self._project: int | None = None

    @override
    @classmethod
    def check(cls, schedule: Schedule) -> None:
        _timing(schedule)

    @override
    def start(self) -> None:
        self._place()

    @override
    def register(self, wake: WakeUp) -> None:
        code = self._code(wake.job)
        if code is None:
            self.update(wake)
            return
        found = self._send("GET", self._definition(code))[self._word]
        same = found.get("description") == self._description(wake)
        if not same or not self._schedules(code):
            self.update(wake)

    @override
    def update(self, wake: WakeUp) -> None:
        code = self._define(wake)
        timing = {
            "schedule": json.dumps(_timing(wake.schedule)),
            "failureStrategy": "CONTINUE",
            "warningType": "NONE",
            "warningGroupId": "0",
            f"{self.settings.definitions}InstancePriority": "MEDIUM",
            "workerGroup": self.settings.worker_group,
            "tenantCode": self.settings.tenant,
            "environmentCode": "-1",
        }
        if found := self._schedules(code):
            self._send("PUT", f"{self._place()}/schedules/{found[0]}", data=timing)
        else:
            of = {f"{self._word}Code": str(code)}
            self._send("POST", f"{self._place()}/schedules", data={**of, **timing})
            found = self._schedules(code)
        if wake.active:
            self._send("POST", f"{self._place()}/schedules/{found[0]}/online")

    @override
    def unregister(self, job: str) -> None:
        if (code := self._code(job)) is None:
            return
        self._release(code, online=False)
        for schedule in self._schedules(code):
            self._send("DELETE", f"{self._place()}/schedules/{schedule}")
        self._send("DELETE", self._definition(code))

    @property
    def _word(self) -> str:
        return f"{self.settings.definitions}Definition"

    def _name(self, job: str) -> str:
        return f"{self.settings.prefix}.{job}"

    def _description(self, wake: WakeUp) -> str:
        state = "woken" if wake.active else "paused"
        return f"Wakes job {wake.job} of Headrace. Version {wake.version}, {state}."

    def _place(self) -> str:
        """Return the path of the project; create the project if it does not exist."""
        if self._project is None:
            projects = self._send("GET", "/projects/created-and-authed") or []
            named = {each["name"]: each["code"] for each in projects}
            if (code := named.get(self.settings.project)) is None:
                data = {"projectName": self.settings.project, "description": "Of Headrace."}
                code = self._send("POST", "/projects", data=data)["code"]
            self._project = int(code)
        return f"/projects/{self._project}"

    def _definition(self, code: int | None = None) -> str:
        place = f"{self._place()}/{self.settings.definitions}-definition"
        return place if code is None else f"{place}/{code}"

    def _code(self, job: str) -> int | None:
        """Return the code of a job's workflow; None if no workflow has exactly its name."""
        found = self._send("GET", f"{self._definition()}/simple-list") or []
        named = (int(each["code"]) for each in found if each["name"] == self._name(job))
        return next(named, None)

    def _schedules(self, code: int) -> list[int]:
        """Return the ids of a workflow's schedules; there is at most one."""
        query = {f"{self._word}Code": code, "pageNo": 1, "pageSize": 10}
        page = self._send("GET", f"{self._place()}/schedules", params=query)
        return [int(each["id"]) for each in page["totalList"]]

    def _define(self, wake: WakeUp) -> int:
        """Create or replace a job's workflow, and set it online; return its code."""
        code = self._code(wake.job)
        if code is None:
            task = self._send(
                "GET", f"{self._place()}/task-definition/gen-task-codes", params={"genNum": 1}
            )[0]
            made = self._send(
                "POST", self._definition(), data=self._workflow(wake, int(task), 1)
            )
            code = int(made["code"])
        else:
            self._release(code, online=False)  # only offline workflows may be changed
            [task] = self._send("GET", self._definition(code))["taskDefinitionList"]
            body = self._workflow(wake, int(task["code"]), int(task["version"]))
            self._send("PUT", self._definition(code), data=body)
        self._release(code, online=True)
        return code

    def _release(self, code: int, *, online: bool) -> None:
        """Set a workflow online, or offline to change it; offline includes its schedule."""
        state = "ONLINE" if online else "OFFLINE"
        data = {"name": "", "releaseState": state}
        self._send("POST", f"{self._definition(code)}/release", data=data)

    def _workflow(self, wake: WakeUp, task: int, version: int) -> Mapping[str, str]:
        relation = {
            "name": "",
            "preTaskCode": 0,
            "preTaskVersion": 0,
            "postTaskCode": task,
            "postTaskVersion": version,
            "conditionType": "NONE",
            "conditionParams": {},
        }
        return {
            "name": self._name(wake.job),
            "description": self._description(wake),
            "globalParams": "[]",
            "locations": json.dumps([{"taskCode": task, "x": 200, "y": 200}]),
            "timeout": "0",
            "tenantCode": self.settings.tenant,
            "executionType": "PARALLEL",
            "taskRelationJson": json.dumps([relation]),
            "taskDefinitionJson": json.dumps([self._task(wake, task, version)]),
        }

    def _task(self, wake: WakeUp, code: int, version: int) -> Mapping[str, object]:
        headers = {
            "Authorization": f"Bearer {wake.token}",
            "Prefer": f"wait={_WAIT_SECONDS}",
        }
        request = {
            "localParams": [],
            "resourceList": [],
            "httpParams": [
                {"prop": name, "httpParametersType": "HEADERS", "value": value}
                for name, value in headers.items()
            ],
            "url": f"{self.settings.callback_url.rstrip('/')}{wake.path}",
            "httpMethod": "POST",
            "httpBody": "{}",
            "httpCheckCondition": "BODY_CONTAINS",
            "condition": '"state":"succeeded"',
            "connectTimeout": _ANSWER_MS,
            "socketTimeout": _ANSWER_MS,
        }
        return {
            "code": code,
            "version": version,
            "name": "run",
            "description": "Asks Headrace for a run, and waits for its end.",
            "taskType": "HTTP",
            "taskParams": request,
            "flag": "YES",
            "isCache": "NO",
            "taskPriority": "MEDIUM",
            "taskExecuteType": "BATCH",
            "workerGroup": self.settings.worker_group,
            "environmentCode": -1,
            # In minutes: the request is sent when the window is due, not at the window's end.
            "delayTime": math.ceil(wake.schedule.delay / timedelta(minutes=1)),
            "failRetryTimes": _RETRIES,
            "failRetryInterval": 1,
            "timeoutFlag": "CLOSE",
            "timeoutNotifyStrategy": "",
            "timeout": 0,
        }

    def _send(self, method: str, path: str, **request: Any) -> Any:
        """Return the data of a response. Raises EngineRefusedError if its code is not 0."""
        headers = {"token": self.settings.token.value}
        answer = json_of(self.request(method, path, headers=headers, **request))
        if not isinstance(answer, dict) or "code" not in answer:
            problem = f"{self.settings.url} is not the API of DolphinScheduler."
            fix = "Correct url, such as http://dolphinscheduler:12345/dolphinscheduler."
            raise EngineRefusedError(problem, fix=fix)
        if answer["code"] != 0:
            problem = f"{method} {path} was rejected: {answer.get('msg')} ({answer['code']})."
            raise EngineRefusedError(problem, fix="See the log of DolphinScheduler.")
        return answer.get("data")


def _timing(schedule: Schedule) -> Mapping[str, str]:
    """Return a schedule in DolphinScheduler's format. Raises ConfigError.

    The callback requests a window without bounds, so the workflow only has to run once after
    the end of each window.
    """
    start, zone = schedule.local(schedule.start), schedule.zone
    end = schedule.local(schedule.end) if schedule.end is not None else start + _NO_END
    if isinstance(schedule.rhythm, Once):
        crontab: str | None = f"{end:%-S %-M %-H %-d %-m ? %Y}"
    elif (fields := cron_of(schedule)) is not None:
        crontab, zone = fields.quartz, fields.zone
    else:
        crontab = None
    if crontab is None:
        raise ConfigError(
            problem="DolphinScheduler cannot run a workflow at the ends of these windows.",
            fix="Use a cron expression with days of the month or of the week, but not both, or "
            "an interval that divides a minute, an hour, a day or a year.",
            field="schedule.every",
        )
    if schedule.end is not None:  # the first time after the last window wakes it
        ticks = schedule.rhythm.ticks(start, schedule.local(schedule.end))
        end = next(ticks, end + timedelta(seconds=1))
    return {
        "startTime": _in(start, zone),
        "endTime": _in(end, zone),
        "crontab": crontab,
        "timezoneId": zone,
    }


def _in(time: datetime, zone: str) -> str:
    return time.astimezone(ZoneInfo(zone)).strftime(_TIME)
