"""Guarantees 1 to 3 where Spark's JVM is killed under running connectors."""

import json
import os
import random
import statistics
import subprocess
import time
from pathlib import Path

import fastavro
import httpx2
import pytest
from tests.e2e.pairs import HEADRACE, SECONDS, SINK, Pairs, kill
from tests.waiting import until

SPARK_LOST = 4
TRIAL = {
    "config": {
        "transforms": "k",
        "transforms.k.type": "ValueToKey",
        "transforms.k.fields": "id",
    },
    "records": [{"value": {"id": 1}}],
}
pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("quick_java")]


@pytest.mark.parametrize(
    ("pairs", "kills"), [(2, 2), pytest.param(10, 20, marks=pytest.mark.long)]
)
def test_each_row_arrives_once_while_the_jvm_is_killed(
    tmp_path: Path, pairs: int, kills: int
) -> None:
    bench = Pairs(tmp_path, pairs, {"HEADRACE_SPARK_FAILURES_MAX": "1000"})
    chance, took = random.Random(5), []  # noqa: S311 - no secret
    with bench.serving() as process:
        bench.make()
        for _ in range(kills):
            bench.feed()
            time.sleep(chance.uniform(0, 2))
            bench.feed()
            time.sleep(chance.uniform(0, 0.5))
            kill(process)
            killed, before = time.monotonic(), bench.rows()
            bench.feed()
            until(lambda seen=before: bench.rows() > seen, bench.told)  # type: ignore[misc]  # a default in a lambda
            took.append(time.monotonic() - killed)
        until(bench.arrived, bench.told)
        states = {
            task["state"]
            for each in bench.ask("/connectors?expand=status").values()
            for task in each["status"]["tasks"]
        }
        assert states == {"RUNNING"}
    log = bench.log.read_text()
    assert log.count("error: Spark's JVM has ended") == kills
    assert "task failed" not in log
    print(f"{kills} kills, {pairs} pairs: ", end="")  # noqa: T201 - the figures are wanted
    print(f"median {statistics.median(took):.1f} s, worst {max(took):.1f} s")  # noqa: T201


def test_a_server_whose_jvm_ends_too_often_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    bench = Pairs(tmp_path, 1, {"HEADRACE_SPARK_FAILURES_MAX": "2"})
    with bench.serving() as process:
        bench.make()
        bench.feed()
        until(bench.arrived, bench.told)
        kill(process)
        answer = httpx2.post(f"{bench.url}/v1/transforms/try", json=TRIAL, timeout=60)
        assert answer.status_code in {200, 503}, answer.text  # if Spark is back already, or not
        bench.feed()
        until(lambda: bench.ask("/health")["checks"]["spark"]["status"] != "healthy")
        until(bench.arrived, bench.told)
        assert bench.ask("/health")["checks"]["spark"]["status"] == "healthy"
        kill(process)
        assert process.wait(60) == SPARK_LOST
    assert "spark.lost" in bench.log.read_text()


@pytest.mark.long
def test_a_file_that_is_too_large_for_the_jvm_fails_its_own_task_alone(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "large.avro").open("wb") as file:  # 1 MB, and 1 GiB in memory
        schema = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}
        fastavro.writer(file, schema, [{"b": bytes(1 << 30)}], codec="deflate")
    bench = Pairs(tmp_path, 2)
    with bench.serving() as process:
        bench.make()
        source = {"connector.class": "file", "path": str(tmp_path / "large"), "topic": "large"}
        bench.create("large", {**source, "format": "avro"})

        def state() -> str:
            bench.feed()
            return str(bench.ask("/connectors/large/status")["tasks"][0]["state"])

        until(lambda: state() == "FAILED", bench.told)
        assert "spark.crashed" in bench.ask("/connectors/large/status")["tasks"][0]["trace"]
        until(bench.arrived, bench.told)
        assert process.poll() is None
    assert 5 <= bench.log.read_text().count("error: Spark's JVM has ended") <= 8


def test_a_run_goes_on_after_its_jvm_was_killed(tmp_path: Path) -> None:
    rows = 3000
    definition = {
        "name": "rows",
        "config": {
            "connector.class": "datagen",
            "rows": str(rows),
            "rate": "300",
            "topic": "t",
        },
    }
    sink = {
        "name": "out",
        "config": {"connector.class": SINK, "topics": "t", "file": str(tmp_path / "out")},
    }
    for each in (definition, sink):
        (tmp_path / f"{each['name']}.json").write_text(json.dumps(each))
    files = [str(tmp_path / "rows.json"), str(tmp_path / "out.json")]
    with subprocess.Popen(
        [HEADRACE, "run", "--json", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HEADRACE_HOME": str(tmp_path / "home")},
    ) as process:
        out = tmp_path / "out"
        until(lambda: out.exists() and out.read_text())
        kill(process)
        told, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, told[-3000:]
    lines = out.read_text().splitlines()
    assert (len(lines), len(set(lines))) == (rows, rows)
