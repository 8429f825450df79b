"""A stand-in for DolphinScheduler's REST API, with the rules that its services have."""

import itertools
import json
import re
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

TOKEN = "of ann"  # noqa: S105 - a test's
ROOT = "/dolphinscheduler"


class Refused(Exception):  # noqa: N818 - as DolphinScheduler's answers do
    """An answer that says by its code what is wrong."""


class DolphinServer:
    """Answers as DolphinScheduler 3.3 does, or 3.2 with ``process``."""

    def __init__(self, server: HTTPServer, word: str = "workflow") -> None:
        self.server, self.word = server, word
        self.asked: list[str] = []
        self.projects: dict[int, str] = {7: "of others"}
        self.workflows: dict[int, dict[str, Any]] = {}
        self.schedules: dict[int, dict[str, Any]] = {}
        self.codes = itertools.count(100)
        server.expect_request(re.compile(f"{ROOT}/.*")).respond_with_handler(self.answer)

    @property
    def url(self) -> str:
        return self.server.url_for(ROOT)

    def project(self) -> int:
        [code] = [code for code, name in self.projects.items() if name == "headrace"]
        return code

    def answer(self, request: Request) -> Response:
        path = request.path.removeprefix(ROOT)
        self.asked.append(f"{request.method} {path}")
        assert b"hrc_" not in request.query_string
        if request.headers.get("token") != TOKEN:
            return Response(status=401)
        try:
            data = self.act(request.method, path, request)
        except Refused as error:
            code, text = error.args
            body = {"code": code, "msg": text, "data": None, "success": False}
        else:
            body = {"code": 0, "msg": "success", "data": data, "success": True}
        status = 201 if request.method == "POST" else 200
        return Response(json.dumps(body), status, content_type="application/json")

    def act(self, method: str, path: str, request: Request) -> Any:
        if path == "/projects/created-and-authed":
            return [{"code": code, "name": name} for code, name in self.projects.items()]
        if (method, path) == ("POST", "/projects"):
            code = next(self.codes)
            self.projects[code] = request.form["projectName"]
            return {"code": code, "name": request.form["projectName"]}
        found = re.fullmatch(r"/projects/(\d+)/([^/]+)(?:/(.*))?", path)
        assert found, path
        project, kind, rest = int(found[1]), found[2], found[3] or ""
        assert self.projects[project] == "headrace"
        if kind == "task-definition":
            assert rest == "gen-task-codes"
            return [next(self.codes) for _ in range(int(request.args["genNum"]))]
        if kind == "schedules":
            return self.schedule(method, rest, request)
        assert kind == f"{self.word}-definition"
        return self.workflow(method, rest, request)

    def workflow(self, method: str, rest: str, request: Request) -> Any:
        if rest == "simple-list":
            return [{"code": c, "name": each["name"]} for c, each in self.workflows.items()]
        if method == "POST" and not rest:
            names = {each["name"] for each in self.workflows.values()}
            if request.form["name"] in names:
                raise Refused(10168, "the name exists already")
            code = next(self.codes)
            self.workflows[code] = {**read(request), "releaseState": "OFFLINE"}
            return {"code": code}
        code = int(rest.partition("/")[0])
        if code not in self.workflows:
            raise Refused(50003, f"workflow definition {code} does not exist")
        one = self.workflows[code]
        if rest.endswith("/release"):
            one["releaseState"] = request.form["releaseState"]
            if one["releaseState"] == "OFFLINE":
                for schedule in self.of(code):
                    schedule["releaseState"] = "OFFLINE"
            return None
        if method != "GET" and one["releaseState"] == "ONLINE":
            raise Refused(50056, "the workflow is online")
        if method == "PUT":
            one |= read(request)
            one["tasks"][0]["version"] += 1
            return {"code": code}
        if method == "DELETE":
            if any(each["releaseState"] == "ONLINE" for each in self.of(code)):
                raise Refused(50023, "the schedule is online")
            del self.workflows[code]
            return None
        told = {key: one[key] for key in ("name", "description", "releaseState")}
        return {f"{self.word}Definition": told, "taskDefinitionList": one["tasks"]}

    def of(self, code: int) -> list[dict[str, Any]]:
        return [each for each in self.schedules.values() if each["workflow"] == code]

    def schedule(self, method: str, rest: str, request: Request) -> Any:
        key = f"{self.word}DefinitionCode"
        if method == "GET":
            mine = [
                {"id": id_}
                for id_, each in self.schedules.items()
                if each["workflow"] == int(request.args[key])
            ]
            return {"totalList": mine, "total": len(mine)}
        if method == "POST" and not rest:
            code = int(request.form[key])
            if self.workflows[code]["releaseState"] != "ONLINE":
                raise Refused(50004, "the workflow is not online")
            made = {"workflow": code, "releaseState": "OFFLINE", **timing(request)}
            self.schedules[id_ := next(self.codes)] = made
            return {"id": id_}
        number, _, action = rest.partition("/")
        one = self.schedules[int(number)]
        if action:
            one["releaseState"] = action.upper()
        elif one["releaseState"] == "ONLINE":
            raise Refused(10023, "the schedule is online")
        elif method == "DELETE":
            del self.schedules[int(number)]
        else:
            one |= timing(request)
        return None


def read(request: Request) -> dict[str, Any]:
    """Return a workflow as it is sent; its task must be the one of its relation."""
    tasks = json.loads(request.form["taskDefinitionJson"])
    [relation] = json.loads(request.form["taskRelationJson"])
    assert [relation["postTaskCode"]] == [task["code"] for task in tasks]
    return {
        "name": request.form["name"],
        "description": request.form["description"],
        "tasks": tasks,
    }


def timing(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.form["schedule"])
    assert found.keys() == {"startTime", "endTime", "crontab", "timezoneId"}
    return found
