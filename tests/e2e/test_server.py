"""A server as users run it: a process with Kafka Connect's API, and its sudden end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.waiting import until

HEADRACE = Path(sys.executable).with_name("headrace")
SECONDS = 120


@contextmanager
def served(home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server; at the end it is asked to stop, and must do so well."""
    log = home / "server.err"
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [HEADRACE, "server", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "HEADRACE_HOME": str(home)},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line)["url"], process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(SECONDS) == 0, log.read_text()
        finally:
            process.kill()


def asked(url: str, method: str, path: str, body: Any = None) -> Any:
    answer = httpx2.request(method, f"{url}{path}", json=body, timeout=30)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def lines_of(target: Path) -> list[str]:
    """Return what is in the target, each line as often as it is there."""
    return sorted(target.read_text().splitlines()) if target.exists() else []


def append(file: Path, lines: list[str]) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def configs(source: Path, target: Path) -> tuple[dict[str, str], dict[str, str]]:
    reads = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": "lines",
    }
    writes = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": "lines",
        "file": str(target),
    }
    return reads, writes


def refused(home: Path) -> str:
    """Start a server that must not start; return why."""
    ended = subprocess.run(
        [HEADRACE, "server", "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "HEADRACE_HOME": str(home)},
    )
    assert ended.returncode == 1
    return ended.stderr


def metrics(url: str) -> dict[str, float]:
    """Return the value of each series, by its name with its labels."""
    lines = httpx2.get(f"{url}/metrics", timeout=30).text.splitlines()
    told = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {series: float(value) for series, _, value in told}


def check_metrics(url: str, records: int) -> None:
    """Check the metrics of a server that has moved so many records or more since it began."""
    written = 'headrace_task_records_written_total{connector="sink",task="0"}'
    # The last batch is told of after it is durable. The batch before the kill may have been
    # durable and not told of: then it ran again, and is counted by this server too.
    until(lambda: metrics(url).get(written, 0) >= records)
    # What a look at the processes finds is there when the first look is over.
    until(lambda: metrics(url).get('headrace_worker_processes{process="host"}') == 1)
    found = metrics(url)
    for name, state in (("source", "RUNNING"), ("paused", "PAUSED")):
        assert found[f'headrace_connector_state{{connector="{name}",state="{state}"}}'] == 1
    assert found['headrace_connector_tasks{connector="source",state="RUNNING"}'] == 1
    read = (v for k, v in found.items() if k.startswith("headrace_task_records_read_total"))
    assert sum(read) >= 2 * records
    assert found['headrace_jvm_memory_used_bytes{area="heap"}'] > 0
    assert found['headrace_worker_memory_rss_bytes{process="jvm"}'] > 0
    assert found["headrace_spark_jobs_running"] >= 0


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(280)
def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    home, source, target = tmp_path / "home", tmp_path / "in.txt", tmp_path / "out.txt"
    home.mkdir()
    first, second = ([f"{part} {n}" for n in range(100)] for part in ("first", "second"))
    append(source, first)
    reads, writes = configs(source, target)
    with served(home) as (url, process):
        asked(url, "POST", "/connectors", {"name": "source", "config": reads})
        asked(url, "PUT", "/connectors/sink/config", writes)
        asked(url, "PUT", "/connectors/paused/config", {**writes, "file": f"{target}.2"})
        asked(url, "PUT", "/connectors/paused/pause")
        until(lambda: lines_of(target) == sorted(first))
        process.kill()
        process.wait(SECONDS)
    append(source, second)
    with served(home) as (url, _):
        until(lambda: lines_of(target) == sorted(first + second))
        statuses = asked(url, "GET", "/connectors?expand=status")
        states = {name: each["status"]["connector"]["state"] for name, each in statuses.items()}
        assert states == {"source": "RUNNING", "sink": "RUNNING", "paused": "PAUSED"}
        [offset] = asked(url, "GET", "/connectors/source/offsets")["offsets"]
        assert offset["partition"] == {"filename": str(source)}
        assert offset["offset"]["position"] == source.stat().st_size
        check_metrics(url, records=len(second))
        assert "Another server runs" in refused(home)
        asked(url, "DELETE", "/connectors/source")
        asked(url, "PUT", "/connectors/sink/stop")
        until(
            lambda: (
                asked(url, "GET", "/connectors/sink/status")["connector"]["state"] == "STOPPED"
            )
        )
        [offset] = asked(url, "GET", "/connectors/sink/offsets")["offsets"]
        assert offset["partition"] == {"kafka_topic": "lines", "kafka_partition": 0}
