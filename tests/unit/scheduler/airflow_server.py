"""A stand-in for Airflow's REST API: it knows DAGs whose files it is told to read."""

import json
import re
from pathlib import Path
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response


class AirflowServer:
    """Answers as Airflow 3 does, and keeps what it was asked."""

    def __init__(self, server: HTTPServer, dags: Path) -> None:
        self.server, self.folder = server, dags
        self.asked: list[str] = []
        self.connections: dict[str, dict[str, Any]] = {}
        self.dags: dict[str, dict[str, Any]] = {}
        self.import_errors: list[dict[str, str]] = []
        self.tokens = 0
        self.running = False
        server.expect_request("/auth/token").respond_with_handler(self.token)
        server.expect_request(re.compile("/api/v2/.*")).respond_with_handler(self.api)

    @property
    def url(self) -> str:
        return self.server.url_for("").rstrip("/")

    def read(self) -> None:
        """Read the folder of DAGs, as Airflow does from time to time."""
        found = {file.stem: file.read_text() for file in self.folder.glob("*.py")}
        for name, text in found.items():
            space: dict[str, Any] = {}
            [line] = [each for each in text.splitlines() if each.startswith("JOB = ")]
            exec(f"import json\n{line}", space)  # noqa: S102 - our own
            compile(text, name, "exec")
            job = space["JOB"]
            assert job["id"] == name
            self.dags.setdefault(name, {"is_paused": job["paused"], "is_stale": False})
        for name in self.dags.keys() - found.keys():
            self.dags[name]["is_stale"] = True

    def expire(self) -> None:
        self.tokens += 1

    def token(self, request: Request) -> Response:
        self.asked.append("token")
        if request.get_json() != {"username": "ann", "password": "let me in"}:
            return answer({"detail": "Invalid credentials"}, 401)
        self.tokens += 1
        return answer({"access_token": f"token-{self.tokens}"}, 201)

    def api(self, request: Request) -> Response:
        path = request.path.removeprefix("/api/v2")
        self.asked.append(f"{request.method} {path}")
        assert request.query_string.find(b"hrc_") < 0
        if request.headers["Authorization"] != f"Bearer token-{self.tokens}":
            return answer({"detail": "Invalid JWT token"}, 401)
        kind, _, name = path.strip("/").partition("/")
        if kind == "importErrors":
            return answer({"import_errors": self.import_errors})
        things = self.dags if kind == "dags" else self.connections
        if request.method == "POST":
            body = request.get_json()
            if body["connection_id"] in things:
                return answer({"detail": "There is one."}, 409)
            things[body["connection_id"]] = body
            return answer(body, 201)
        if name not in things:
            return answer({"detail": f"{name} was not found"}, 404)
        match request.method:
            case "PATCH":
                things[name] |= request.get_json()
            case "DELETE" if kind == "dags" and self.running:
                problem = f"Task instances of dag with id: '{name}' are still running"
                return answer({"detail": problem}, 409)
            case "DELETE":
                del things[name]
                return Response(status=204)
        return answer(things.get(name))


def answer(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")
