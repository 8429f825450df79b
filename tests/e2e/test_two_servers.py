"""Two servers on one PostgreSQL database: the next takes over when the first is dead."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.test_server import append, asked, configs, lines_of
from tests.postgresql_server import STORE, PostgresqlServer
from tests.waiting import until

HEADRACE = Path(sys.executable).with_name("headrace")
SECONDS = 240
LEASE_SECONDS = 6


@dataclass
class Machine:
    """A machine of its own, as far as its home folder goes; topics are shared."""

    folder: Path
    name: str
    url: str

    def start(self, *options: str) -> subprocess.Popen[str]:
        home = self.folder / self.name
        home.mkdir(exist_ok=True)
        settings = {
            "HEADRACE_HOME": str(home),
            "HEADRACE_TOPICS_DIR": str(self.folder / "topics"),
            "HEADRACE_STORE_URL": self.url,
            "HEADRACE_LEASE": f"PT{LEASE_SECONDS}S",
        }
        with self.log.open("a") as errors:
            return subprocess.Popen(
                [HEADRACE, "server", "--port", "0", *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **settings},
            )

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.err"

    def refused(self) -> str:
        with self.start() as process:
            assert process.wait(SECONDS) == 1, self.log.read_text()
        return self.log.read_text()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    told = json.loads(process.stdout.readline() or "{}")
    assert "url" in told, told
    return str(told["url"])


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_next_server_takes_over_when_the_first_is_dead(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    reads, writes = configs(source, target)
    lines = [f"line {n}" for n in range(200)]
    append(source, lines[:100])
    with postgresql.database(STORE) as url, ExitStack() as ended:
        one, two = Machine(tmp_path, "one", url), Machine(tmp_path, "two", url)
        first = ended.enter_context(one.start("--json"))
        ended.callback(first.kill)
        at = address(first)
        asked(at, "PUT", "/connectors/source/config", reads)
        asked(at, "PUT", "/connectors/sink/config", writes)
        until(lambda: lines_of(target) == sorted(lines[:100]))
        assert "Another server" in two.refused()
        first.kill()
        first.wait(SECONDS)
        append(source, lines[100:])
        time.sleep(LEASE_SECONDS)  # until its place is free
        second = ended.enter_context(two.start("--json"))
        ended.callback(second.kill)
        asked(address(second), "GET", "/connectors")
        until(lambda: lines_of(target) == sorted(lines))
        assert "Another server" in one.refused()
        second.terminate()
        assert second.wait(SECONDS) == 0
