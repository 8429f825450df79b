"""``headrace run`` and ``preview`` as users run them, with Spark."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.free_port import free_port

pytestmark = pytest.mark.spark

HEADRACE = [
    sys.executable,
    "-c",
    "import sys; from headrace.cli import main; sys.exit(main())",
]
BOUNDED = """\
name: gen
source: {connector: datagen, rows: 5000, schema: "id BIGINT NOT NULL, name STRING"}
topic: gen
transforms: [{type: Filter, name: thirds, predicate: "id % 3 = 0"}]
"""
TWO_STEPS = """\
name: gen
source: {connector: datagen, rows: 5000, schema: "id BIGINT NOT NULL, name STRING"}
topic: gen
transforms:
  - {type: Filter, name: thirds, predicate: "id % 3 = 0"}
  - {type: Filter, name: ones, predicate: "id = 1"}
"""
AWAY = """\
name: away
source: {connector: tests.integration.failing_source.Away}
topic: away
"""
ENDLESS = """\
name: flow
source: {connector: datagen, rate: 2000, schema: "id BIGINT NOT NULL"}
topic: flow
"""


@pytest.fixture
def environment(tmp_path: Path, quick_java: None) -> dict[str, str]:
    small = {"HEADRACE_MASTER": "local[2]", "HEADRACE_DRIVER_MEMORY": "1g"}
    return {**os.environ, "HEADRACE_HOME": str(tmp_path / "home"), **small}


def _file(folder: Path, text: str) -> str:
    file = folder / "definition.yaml"
    file.write_text(text)
    return str(file)


@pytest.fixture
def warm(environment: dict[str, str], warm_programs: Path) -> dict[str, str]:
    """The same for commands that are forked; those of the other tests start by themselves."""
    return {**environment, "WARM": str(warm_programs / "headrace")}


def _headrace(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [environment["WARM"]] if "WARM" in environment else HEADRACE
    return subprocess.run(
        [*program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment,
    )


def _objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_available_is_moved_once_and_every_record_accounted_for(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    file = _file(tmp_path, BOUNDED)
    first = _headrace(environment, "run", "--once", "--json", file)
    assert first.returncode == 0, first.stderr
    *events, summary = _objects(first.stdout)
    assert {event["event"] for event in events} == {"state", "batch"}
    assert summary["event"] == "summary"
    assert summary["state"] == "completed"
    assert summary["read"] == 5000
    assert summary["filters"] == {"thirds": 1667}
    assert summary["written"] == 3333
    assert sum(e["read"] for e in events if e["event"] == "batch") == 5000

    second = _headrace(environment, "run", "--once", file)
    assert second.returncode == 0, second.stderr
    assert "no source had new records" in second.stdout
    assert second.stderr.splitlines()[0] == "starting Spark"

    topics = _headrace(environment, "topic", "list", "--json")
    assert json.loads(topics.stdout)[0]["rows"] == 3333


@pytest.mark.parametrize(
    ("keys", "options", "told"),
    [
        ("", ["--timeout", "3"], "stopping after 3 s"),
        ("errors.retry.timeout: 0", [], "error[task.retriable] away-0: It is away."),
    ],
    ids=["after the timeout of the run", "at once where nothing is tried again"],
)
def test_a_run_whose_source_is_away_ends_with_1(
    tmp_path: Path, environment: dict[str, str], keys: str, options: list[str], told: str
) -> None:
    file = _file(tmp_path, f"{AWAY}{keys}\n")
    ended = _headrace(environment, "run", "--once", *options, file)
    assert ended.returncode == 1
    assert told in ended.stderr


def test_a_failed_task_ends_with_1_and_its_error_and_fix(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    file = _file(tmp_path, BOUNDED.replace("rows: 5000", "rows: 5000, bad.ratio: 0.1"))
    ended = _headrace(warm, "run", "--once", file)
    assert ended.returncode == 1
    assert "failed: 1 of 1 task" in ended.stdout
    assert ended.stderr.count("error[record.not_tolerated] gen-0: ") == 1
    assert "  fix: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_whose_bad_record_was_repaired_is_copied_by_the_next_run(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    read = tmp_path / "in.csv"
    read.write_text("id,n\n1,10\n2,x\n")
    file = _file(
        tmp_path,
        f"""
        name: repaired
        source: {{connector: file, path: {read}, format: csv, schema: "id BIGINT, n INT"}}
        sink: {{connector: file, path: {tmp_path / "out"}, format: csv}}
        """,
    )
    assert "error[record.not_tolerated]" in _headrace(warm, "run", "--once", file).stderr
    read.write_text("id,n\n1,10\n2,20\n")
    ended = _headrace(warm, "run", "--once", file)
    assert ended.returncode == 0, ended.stderr
    written = [path.read_text() for path in (tmp_path / "out").glob("*.csv")]
    assert written == ["id,n\n1,10\n2,20\n"]


def test_a_preview_shows_each_step_and_writes_nothing(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    ended = _headrace(warm, "preview", _file(tmp_path, TWO_STEPS), "--rows", "4", "--json")
    assert ended.returncode == 0, ended.stderr
    stages = {stage["name"]: stage["records"] for stage in json.loads(ended.stdout)["stages"]}
    fates = {
        name: [(record["value"]["id"], record.get("dropped")) for record in records]
        for name, records in stages.items()
    }
    assert fates == {
        "source": [(0, None), (1, None), (2, None), (3, None)],
        "thirds": [(0, "thirds"), (1, None), (2, None), (3, "thirds")],
        "ones": [(1, "ones"), (2, None)],
    }
    assert _headrace(warm, "topic", "list", "--json").stdout == "[]\n"


def test_a_preview_of_a_growing_file_shows_its_whole_lines(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\nthree\nunfinis")
    file = _file(
        tmp_path,
        f"name: grow\nsource: {{connector: file, path: {log}, mode: grow}}\ntopic: lines\n"
        "transforms: [{type: Filter, name: short, predicate: length(value) > 3}]\n",
    )
    ended = _headrace(warm, "preview", file, "--json")
    assert ended.returncode == 0, ended.stderr
    source, short = json.loads(ended.stdout)["stages"]
    assert [record["value"] for record in source["records"]] == ["one", "two", "three"]
    assert [record["value"] for record in short["records"] if "dropped" in record] == ["three"]
    assert _headrace(warm, "topic", "list", "--json").stdout == "[]\n"


def test_a_target_that_cannot_be_written_to_is_named_with_its_key(
    tmp_path: Path, warm: dict[str, str]
) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    sink = f"sinks: [{{connector: delta, path: {tmp_path}/taken/table}}]\n"
    ended = _headrace(warm, "run", "--once", _file(tmp_path, BOUNDED + sink))
    assert ended.returncode == 2
    assert "error[config.invalid] gen-" in ended.stderr
    assert "path: " in ended.stderr
    assert "cannot be written to: Not a directory." in ended.stderr
    assert ended.stderr.count("  fix: ") == 1


def test_sigterm_stops_an_endless_run_cleanly(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    port = free_port()
    shows = ("--metrics-port", str(port))
    command = [*HEADRACE, "run", "--json", *shows, _file(tmp_path, ENDLESS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if json.loads(line)["event"] == "batch":
                break
        metrics = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    summary = _objects(rest)[-1]
    assert summary["event"] == "summary"
    assert summary["state"] == "stopped"
    assert summary["tasks"][0]["state"] == "STOPPED"
    assert summary["read"] == summary["written"] > 0
    assert 'headrace_task_state{connector="flow",state="RUNNING",task="0"} 1.0\n' in metrics


def test_on_a_screen_progress_moves_and_ctrl_c_ends_with_the_summary(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    screen, other_end = pty.openpty()
    process = subprocess.Popen(
        [*HEADRACE, "run", _file(tmp_path, ENDLESS)],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "24"},
        start_new_session=True,
    )
    os.close(other_end)
    shown = _read(screen, until=lambda text: "#2 for" in text or "#3 for" in text)
    ages = re.findall(r"starting Spark, (\d+\.\d) s", shown)
    assert len(set(ages)) > 3, "the clock did not move while Spark started"
    assert re.search(r"flow-0 +running +[\d,]+", shown)
    assert shown.count("1 task: 1 running") > 1
    process.send_signal(signal.SIGINT)
    shown = _read(screen, until=lambda text: "stopped: 1 task" in text)
    assert "stopping: running batches are finished" in shown
    assert "STOPPED" in shown
    assert process.wait(60) == 0
    os.close(screen)


def _read(screen: int, *, until: Callable[[str], bool]) -> str:
    """Return the screen's text, without its colours, up to when it shows something."""
    raw, text, deadline = b"", "", time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            raw += os.read(screen, 65536)
        except OSError:  # the process has closed its end
            break
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode(errors="replace"))
        if until(text):
            return text
    pytest.fail(f"never shown; the screen's text was: {text[-2000:]}")
