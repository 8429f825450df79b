"""A server whose PostgreSQL says nothing: it answers, ends when told to, and goes on later."""

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from tests.e2e.test_server import append, asked, configs, lines_of
from tests.e2e.test_two_servers import Machine, address
from tests.postgresql_server import STORE, PostgresqlServer
from tests.waiting import until

ANSWER_SECONDS = 10
END_SECONDS = 60


def refused(at: str, path: str) -> str:
    """Ask for what cannot be answered now, and return what was said; in time."""
    began = time.monotonic()
    answer = httpx2.get(f"{at}{path}", timeout=60)
    assert time.monotonic() - began < ANSWER_SECONDS
    assert answer.status_code in {500, 503}
    return answer.text


def ended_by(server: subprocess.Popen[str]) -> int:
    """Tell a server to end; return how it did."""
    server.terminate()
    return server.wait(END_SECONDS)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_server_bears_a_store_that_says_nothing(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    reads, writes = configs(source, target)
    lines = [f"line {n}" for n in range(300)]
    append(source, lines[:100])
    with postgresql.database(STORE) as url, ExitStack() as ended:
        machine = Machine(tmp_path, "one", url)
        server = ended.enter_context(machine.start("--json"))
        ended.callback(server.kill)
        at = address(server)
        asked(at, "PUT", "/connectors/source/config", reads)
        asked(at, "PUT", "/connectors/sink/config", writes)
        until(lambda: lines_of(target) == sorted(lines[:100]))
        with postgresql.suspended():
            append(source, lines[100:200])
            told = [refused(at, path) for path in ("/health", "/connectors", "/health")]
            assert str(postgresql.port) not in told[0] + told[2]
        until(lambda: lines_of(target) == sorted(lines[:200]))
        assert asked(at, "GET", "/health")["status"] == "healthy"
        with postgresql.suspended():
            refused(at, "/health")
            assert ended_by(server) == 0
        append(source, lines[200:])
        again = ended.enter_context(machine.start("--json"))
        ended.callback(again.kill)
        asked(address(again), "GET", "/connectors")
        until(lambda: lines_of(target) == sorted(lines))
        assert ended_by(again) == 0
