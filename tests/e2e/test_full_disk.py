"""Disks that are full for a while: tasks wait, say so, and go on by themselves."""

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.pairs import Pairs
from tests.faults.volumes import may_mount, volume
from tests.waiting import until

pytestmark = [
    pytest.mark.usefixtures("quick_java"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not may_mount(), reason="a file system is mounted"),
]
GROWING = "org.apache.kafka.connect.file.FileStreamSourceConnector"


def tasks(bench: Pairs) -> dict[str, dict[str, Any]]:
    return {
        name: task
        for name, each in bench.ask("/connectors?expand=status").items()
        for task in each["status"]["tasks"]
    }


def waits_for_space(bench: Pairs, name: str) -> bool:
    task = tasks(bench)[name]
    trace = task.get("trace", "")
    return task["state"] == "RUNNING" and "storage.unavailable" in trace


@pytest.mark.parametrize("where", ["topics", "sinks"])
def test_a_disk_that_is_full_for_a_while_delays_rows_and_loses_none(
    tmp_path: Path, where: str
) -> None:
    topics = tmp_path / "home" / "topics"
    place = topics if where == "topics" else tmp_path / "out"
    with volume(place, 8) as disk:
        out = tmp_path / "out" if where == "sinks" else None
        bench = Pairs(tmp_path, 1, out_folder=out)
        grown = tmp_path / "grown"
        grown.write_text("first\n")
        with bench.serving():
            bench.make()
            bench.create(
                "grown", {"connector.class": GROWING, "file": str(grown), "topic": "g"}
            )
            bench.create("grown-sink", bench.sink("grown-out", "g"))
            bench.feed()
            until(bench.arrived, bench.told)
            until(lambda: bench.lines("grown-out") == ["first"], bench.told)
            disk.fill()
            bench.feed()
            with grown.open("a") as file:
                file.write("second\n")
            waiting = ("source-0", "grown") if where == "topics" else ("sink-0", "grown-sink")
            for name in waiting:
                until(lambda name=name: waits_for_space(bench, name), bench.told)  # type: ignore[misc]  # a default in a lambda
            if where == "topics":
                trace = tasks(bench)["source-0"]["trace"]
                assert str(place) in trace
                assert "bytes are free" in trace
                health = bench.ask("/health")
                assert health["checks"]["disk"]["status"] != "healthy"
                assert str(place) in health["message"]  # no token is needed on loopback
            disk.free()
            until(bench.arrived, bench.told)
            until(lambda: bench.lines("grown-out") == ["first", "second"], bench.told)
            until(
                lambda: all("trace" not in task for task in tasks(bench).values()), bench.told
            )
            assert {task["state"] for task in tasks(bench).values()} == {"RUNNING"}
