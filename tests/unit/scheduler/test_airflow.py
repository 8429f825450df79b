"""What Airflow is asked for, against a server that answers as it does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from tests.unit.scheduler.airflow_server import AirflowServer
from tests.unit.scheduler.test_cron_fields import schedule

from headrace.scheduler import Airflow
from headrace.scheduler.airflow import AirflowSettings
from headrace.scheduler.external_scheduler import (
    EngineRefusedError,
    EngineUnavailableError,
    RegistrationPendingError,
    WakeUp,
)
from headrace.sdk import ConfigError, HeadraceError

TOKEN = "hrc_secret"  # noqa: S105 - of no server
PASSWORD = "let me in"  # noqa: S105 - the stand-in's


@pytest.fixture
def server(httpserver: HTTPServer, tmp_path: Path) -> AirflowServer:
    folder = tmp_path / "dags"
    folder.mkdir()
    return AirflowServer(httpserver, folder)


def settings(url: str, folder: Path, password: str = PASSWORD) -> AirflowSettings:
    return AirflowSettings.parsed(
        {
            "url": url,
            "callback_url": "http://headrace:8083/",
            "username": "ann",
            "password": password,
            "dags_folder": str(folder),
            "timeout_seconds": "5",
        }
    )


@pytest.fixture
def airflow(server: AirflowServer) -> Iterator[Airflow]:
    made = Airflow(settings(server.url, server.folder))
    made.start()
    yield made
    made.stop()


def wake(job: str = "flights", *, active: bool = True, **section: str) -> WakeUp:
    return WakeUp(
        job=job,
        schedule=schedule(**({"every": "1 hour"} | section)),
        active=active,
        version="uid-1",
        path=f"/v1/jobs/{job}/callback",
        token=TOKEN,
    )


def registered(airflow: Airflow, server: AirflowServer, given: WakeUp | None = None) -> None:
    with pytest.raises(RegistrationPendingError):
        airflow.update(given or wake())
    server.read()
    airflow.update(given or wake())


def test_a_job_becomes_a_dag_and_a_connection(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    assert server.dags["headrace.flights"]["is_paused"] is False
    made = server.connections["headrace.flights"]
    assert (made["host"], made["password"]) == ("http://headrace:8083", TOKEN)
    [file] = server.folder.iterdir()
    assert file.name == "headrace.flights.py"
    text = file.read_text()
    assert TOKEN not in text
    assert PASSWORD not in text
    assert server.asked.count("token") == 1


def test_what_is_there_is_left_as_it_is(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    [file] = server.folder.iterdir()
    before = file.stat()
    server.dags["headrace.flights"]["is_paused"] = True  # by somebody, in Airflow
    airflow.register(wake())
    assert file.stat().st_ino == before.st_ino
    assert server.dags["headrace.flights"]["is_paused"] is True


def test_what_somebody_has_deleted_comes_back(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    server.connections.clear()
    (server.folder / "headrace.flights.py").unlink()
    airflow.register(wake())
    assert server.connections["headrace.flights"]["password"] == TOKEN
    assert (server.folder / "headrace.flights.py").exists()


def test_a_job_that_may_not_run_is_paused(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    airflow.update(wake(active=False))
    assert server.dags["headrace.flights"]["is_paused"] is True
    airflow.update(wake(active=False, job="others"))  # and is not waited for
    server.read()
    assert server.dags["headrace.others"]["is_paused"] is True
    airflow.update(wake())
    assert server.dags["headrace.flights"]["is_paused"] is False


def test_nothing_is_left_of_a_job_that_is_gone(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    registered(airflow, server, wake("flights-2"))
    airflow.unregister("flights")
    assert server.dags.keys() == {"headrace.flights-2"}
    assert server.connections.keys() == {"headrace.flights-2"}
    assert [file.name for file in server.folder.iterdir()] == ["headrace.flights-2.py"]
    airflow.unregister("flights")


def test_a_dag_that_runs_is_deleted_later(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    server.running = True
    with pytest.raises(EngineRefusedError, match="still running"):
        airflow.unregister("flights")
    server.running = False
    airflow.unregister("flights")
    assert server.dags == {}


def test_names_that_airflow_does_not_take_are_changed(
    airflow: Airflow, server: AirflowServer
) -> None:
    names = ["a/b", "a_b", "a_b-c14cddc0", "ä b", "x" * 400, "x" * 401]
    for name in names:
        registered(airflow, server, wake(name))
    assert len(server.dags) == len(names)
    assert all(len(name) < 200 and name.isascii() for name in server.dags)
    assert "headrace.a_b" in server.dags


def test_a_name_cannot_break_out_of_the_file(airflow: Airflow, server: AirflowServer) -> None:
    name = "x'''\"\"\"\\\n{}@JOB@" + "\N{LINE SEPARATOR}end"
    registered(airflow, server, wake(name))
    [file] = server.folder.iterdir()
    [line] = [each for each in file.read_text().split("\n") if each.startswith("JOB = ")]
    space: dict[str, dict[str, str]] = {}
    exec(f"import json\n{line}", space)  # noqa: S102 - our own
    assert space["JOB"]["job"] == name


def test_a_file_of_somebody_else_is_left_alone(airflow: Airflow, server: AirflowServer) -> None:
    file = server.folder / "headrace.flights.py"
    file.write_text("# mine\n")
    with pytest.raises(EngineRefusedError, match="was not made by Headrace"):
        airflow.register(wake())
    airflow.unregister("flights")
    assert file.read_text() == "# mine\n"


def test_a_file_that_airflow_cannot_read_says_why(
    airflow: Airflow, server: AirflowServer
) -> None:
    trace = "Traceback\n  x\nModuleNotFoundError: No module named 'httpx'\n"
    server.import_errors = [{"filename": "headrace.flights.py", "stack_trace": trace}]
    with pytest.raises(EngineRefusedError, match="No module named 'httpx'"):
        airflow.register(wake())


def test_a_token_that_has_expired_is_replaced(airflow: Airflow, server: AirflowServer) -> None:
    registered(airflow, server)
    server.expire()
    airflow.register(wake())
    assert server.asked.count("token") == 2


@pytest.mark.parametrize("wrong", ["folder", "password", "url"])
def test_what_is_wrong_says_so_without_secrets(
    server: AirflowServer, tmp_path: Path, wrong: str
) -> None:
    given = settings(server.url, server.folder)
    if wrong == "folder":
        given = settings(server.url, tmp_path / "none")
    elif wrong == "password":
        given = settings(server.url, server.folder, "guessed")
    else:
        given = settings("http://127.0.0.1:9", server.folder)
    airflow = Airflow(given)
    kinds = {"folder": ConfigError, "password": EngineRefusedError}
    with pytest.raises(kinds.get(wrong, EngineUnavailableError)) as raised:
        airflow.register(wake())
    error = raised.value
    assert isinstance(error, HeadraceError)
    assert TOKEN not in str(error)
    assert "guessed" not in str(error)
    airflow.stop()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"every": "1 day", "zone": "Europe/Zurich"}, {"cron": "0 0 * * *"}),
        ({"every": "7 minutes"}, {"seconds": 420.0}),
        (
            {"once": True, "end": "2024-03-31T00:00:00", "delay": "1 hour"},
            {"once": True, "start": "2024-03-31T01:00:00+00:00"},
        ),
        (
            {"every": "1 hour", "end": "2024-03-31T00:00:00"},
            {"end": "2024-03-31T00:00:00+00:00"},
        ),
    ],
)
def test_the_file_says_when(
    airflow: Airflow,
    server: AirflowServer,
    section: dict[str, str],
    expected: dict[str, object],
) -> None:
    given = replace(wake(), schedule=schedule(**section))
    with pytest.raises(RegistrationPendingError):
        airflow.update(given)
    [file] = server.folder.iterdir()
    [line] = [each for each in file.read_text().splitlines() if each.startswith("JOB = ")]
    space: dict[str, dict[str, object]] = {"json": json}  # type: ignore[dict-item]
    exec(line, space)  # noqa: S102 - our own
    assert space["JOB"].items() >= expected.items()
