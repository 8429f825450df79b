"""Jobs in real time on a server: from windows to real time, held, edited, killed, and back."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from deltalake import DeltaTable
from tests.e2e.pairs import Pairs
from tests.e2e.test_postgres_changes import execute
from tests.postgresql_server import PostgresqlServer
from tests.waiting import until

START = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def write(folder: Path, name: str, hours: Iterable[int]) -> list[int]:
    """Write three rows for each hour; return their ids."""
    ids = [10 * hour + n for hour in hours for n in range(3)]
    lines = [f"{i},{(START + (i // 10) * HOUR + (i % 10) * HOUR / 4).isoformat()}" for i in ids]
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(["id,at", *lines, ""]))
    hidden.rename(folder / f"{name}.csv")
    return ids


class Server(Pairs):
    """A server with one job."""

    name = "flights"

    def send(self, method: str, path: str, body: object = None) -> Any:
        url = f"{self.url}/v1/jobs{path}"
        answer = httpx2.request(method, url, json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def begin(self, document: dict[str, Any]) -> None:
        self.send("POST", "", document)
        self.send("POST", f"/{self.name}/submit")

    def job(self) -> Any:
        return self.ask(f"/v1/jobs/{self.name}")

    def live(self) -> Any:
        """Return the run in real time; None before there is one."""
        runs = self.ask(f"/v1/jobs/{self.name}/runs?limit=1000")["items"]
        return next((run for run in runs if run["trigger"] == "realtime"), None)

    def table(self) -> list[int]:
        table = self.folder / "out"
        if not (table / "_delta_log").exists():
            return []
        return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())

    def arrives(self, ids: Iterable[int]) -> None:
        """Wait until the target has these rows, each once, and no other."""
        expected = sorted(ids)
        until(lambda: len(self.table()) >= len(expected), self.log.read_text)
        assert self.table() == expected


def document(folder: Path, **more: object) -> dict[str, Any]:
    return {
        "name": "flights",
        "source": {
            "connector": "file",
            "path": str(folder / "in"),
            "format": "csv",
            "schema": "id LONG, at TIMESTAMP",
            "settle.ms": "0",
            "window.by": "column",
            "window.column": "at",
        },
        "sinks": [{"connector": "delta", "path": str(folder / "out")}],
        "poll.interval.ms": "100",
        "retry.delay": "1 second",
        **more,
    }


def test_an_offline_job_goes_on_in_real_time_and_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    folder, server = tmp_path / "in", Server(tmp_path, 0)
    folder.mkdir()
    ids = write(folder, "a", range(5))
    windows = {
        "every": "1 hour",
        "start": START.replace(tzinfo=None).isoformat(),
        "end": (START + 3 * HOUR).replace(tzinfo=None).isoformat(),
    }
    with server.serving() as process:
        server.begin(document(tmp_path, schedule=windows))
        until(lambda: server.job()["state"] == "finished", server.log.read_text)
        server.arrives(i for i in ids if i < 30)
        edited = server.send("PUT", "/flights", document(tmp_path, mode="realtime"))
        assert (edited["mode"], edited["schedule"]) == ("realtime", None)
        server.arrives(ids)
        # What belongs to windows that are past is not read: as in the windows themselves.
        write(folder, "late", range(2))
        ids += write(folder, "b", range(5, 9))
        server.arrives(ids)
        assert server.job()["state"] == "running"
        until(lambda: server.live()["counts"]["written"] == 18, server.live)

        server.send("POST", "/flights/suspend")
        until(lambda: server.live()["state"] == "queued")
        more = write(folder, "c", range(9, 12))
        time.sleep(1)
        server.arrives(ids)
        server.send("POST", "/flights/resume")
        ids += more
        server.arrives(ids)

        process.kill()
    with server.serving():
        ids += write(folder, "d", range(12, 15))
        server.arrives(ids)
        stepped = {"type": "Cast", "spec": "id:int32"}
        errors = {"tolerance": "all", "deadletterqueue.topic.name": "flights.dlq"}
        edited = document(tmp_path, mode="realtime", transforms=[stepped], errors=errors)
        server.send("PUT", "/flights", edited)
        ids += write(folder, "e", range(15, 17))
        (folder / "bad.csv").write_text(f"id,at\nnone,{(START + 16 * HOUR).isoformat()}\n")
        server.arrives(ids)
        letters = 'headrace_task_dead_letters_total{connector="flights@",task="0"} 1.0'
        until(lambda: letters in httpx2.get(f"{server.url}/metrics", timeout=60).text)

        behind = {**windows, "start": "2100-01-01T00:00:00"}
        del behind["end"]
        server.send("PUT", "/flights", document(tmp_path, schedule=behind))
        until(lambda: server.live()["state"] == "stopped", server.log.read_text)
        assert server.send("DELETE", "/flights") == {"name": "flights", "left": []}


def test_the_changes_of_a_database_are_a_job_in_real_time(
    tmp_path: Path, postgresql: PostgresqlServer
) -> None:
    server = Server(tmp_path, 0)
    with postgresql.database() as url, server.serving():
        execute(url, "CREATE TABLE orders (id bigint PRIMARY KEY)")
        execute(url, "INSERT INTO orders VALUES (1), (2)")
        changes = {
            "connector": "postgres",
            "connection.url": url,
            "table.include.list": "orders",
        }
        sink = {"connector": "delta", "path": str(tmp_path / "out"), "mode": "upsert"}
        copy = {
            "name": "flights",
            "mode": "realtime",
            "source": changes,
            "transforms": [{"type": "Unwrap"}],
            "sinks": [{**sink, "delete.enabled": "true"}],
        }
        server.begin(copy)
        server.arrives([1, 2])
        execute(url, "INSERT INTO orders VALUES (3)")
        server.arrives([1, 2, 3])
        server.send("POST", "/flights/suspend")
        until(lambda: server.live()["state"] == "queued")
        execute(url, "DELETE FROM orders WHERE id = 1")
        server.send("POST", "/flights/resume")
        until(lambda: server.table() == [2, 3], server.log.read_text)
        server.send("POST", "/flights/suspend")
        until(lambda: server.live()["state"] == "queued")
        left = server.send("DELETE", "/flights")["left"]
        assert any(
            "pg_drop_replication_slot('headrace_flights_1_1_" in each for each in left
        ), left
