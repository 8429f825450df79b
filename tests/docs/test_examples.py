"""Every example runs as it stands, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.json")])


@pytest.mark.spark
def test_all_examples_run_and_account_for_each_record(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("headrace"),
            "run",
            "--once",
            "--json",
            *map(str, FILES),
        ],
        cwd=tmp_path,
        env=os.environ | {"HEADRACE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["state"] == "completed"
    for task in summary["tasks"]:
        assert task["read"] == 10_000
        assert task["read"] == task["written"] + task["filtered"] + task["rejected"]
    by_task = {task["task"]: task for task in summary["tasks"]}
    assert by_task["fan-out-0"]["filtered"] > 0
    assert by_task["bad-records-0"]["rejected"] > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "customers",
        "good",
        "orders",
        "orders_from_topic",
        "paid",
        "paid_parquet",
    ]


def test_there_are_examples_in_both_forms() -> None:
    assert {path.suffix for path in FILES} == {".yaml", ".json"}
