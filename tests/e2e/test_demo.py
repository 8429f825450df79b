"""The demo: it moves real data, checks it, refuses what is not its own, and stops."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.quick_java import QUICK_JAVA

from headrace.demo.check import Arrival, Checker, Move, Target
from headrace.demo.folder import TABLES, DemoFolder, check_packages
from headrace.demo.run import Growth, latency
from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError

PROGRAM = Path(sys.executable).with_name("headrace")


@dataclass
class Demo:
    """A run of the demo in a folder that the next one finds."""

    folder: Path
    code: int
    output: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "headrace-demo"
    done = subprocess.run(
        [PROGRAM, "demo", "--dir", folder, "--seconds", "5"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Demo(folder, done.returncode, done.stdout + done.stderr)


@pytest.mark.timeout(900)
@pytest.mark.spark
class TestRun:
    def test_it_checks_every_count_and_checksum_and_ends(self, demo: Demo) -> None:
        assert demo.code == 0, demo.output
        assert "every count and checksum agrees" in demo.output
        assert "336,776" in demo.output
        assert "What to try next" in demo.output

    def test_the_definitions_it_ran_can_be_run_again(
        self, demo: Demo, warm_programs: Path
    ) -> None:
        place = DemoFolder(demo.folder)
        program = warm_programs / "headrace"
        done = subprocess.run(
            [program, "run", "--once", "--home", place.home, place.pipeline("airports")],
            env=os.environ | QUICK_JAVA,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "no source had new records" in done.stdout

    def test_ctrl_c_ends_it_cleanly_and_the_next_run_begins_anew(self, demo: Demo) -> None:
        process = subprocess.Popen(
            [PROGRAM, "demo", "--dir", demo.folder, "--seconds", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("2. Real time"):
                break
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
        output = "".join(seen) + rest
        assert process.returncode == 1, output
        assert "(emptied first)" in output
        assert "stopped; the next run starts over" in output
        assert "Traceback" not in output


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Checker, Path]]:
    """Return a checker of four small CSV files, and the folder of its targets."""
    data = tmp_path / "data"
    data.mkdir()
    for table in TABLES:
        (data / f"{table}.csv").write_text("id,name\n1,a\n2,NA\n3,c\n")
    with Checker(data, tmp_path) as checker:
        yield checker, tmp_path / "tables"


def held(ids: list[int], names: list[str | None]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())})


@pytest.mark.parametrize(
    ("table", "differences"),
    [
        (held([3, 1, 2], ["c", "a", None]), []),
        (held([1, 2], ["a", None]), ["rows", "checksum of id", "checksum of name"]),
        (held([1, 2, 3], ["a", "", "c"]), ["nulls in name", "checksum of name"]),
        (held([1, 2, 3], ["c", None, "a"]), ["checksum of rows"]),
        (held([1, 2, 3], ["a", None, "c"]).drop(["name"]), ["column name is missing"]),
    ],
    ids=["same in another order", "a row lost", "null became empty", "swapped", "no column"],
)
def test_the_check_finds_every_kind_of_difference(
    small: tuple[Checker, Path], table: pa.Table, differences: list[str]
) -> None:
    checker, tables = small
    write_deltalake(tables / "planes", table)
    found = checker.target(Target("planes", "SELECT * FROM planes")).differences
    assert bool(found) == bool(differences)
    for difference in differences:
        assert any(text.startswith(difference) for text in found), found


def test_the_check_works_out_what_a_pipeline_should_count(small: tuple[Checker, Path]) -> None:
    checker, _ = small
    counts = checker.move(
        Move("planes-sink", "planes", filtered="id = '1'", rejected="name IS NULL")
    )
    assert (counts.read, counts.written, counts.filtered, counts.rejected) == (3, 1, 1, 1)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="was not created by the demo"):
        DemoFolder(tmp_path).clean()
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_folder_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    place = DemoFolder(tmp_path / "demo")
    assert place.clean() is False
    place.tables.mkdir()
    assert place.clean() is True
    assert not place.tables.exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(SetupError, match=r"no_such_package.*pip install 'headrace\[demo\]'"):
        check_packages(["no_such_package"])


def test_a_file_grows_to_the_whole_of_its_source_at_an_even_rate(tmp_path: Path) -> None:
    source, target = tmp_path / "all.csv", tmp_path / "growing.csv"
    source.write_text("id\n" + "".join(f"{n}\n" for n in range(1000)))
    growth = Growth(source, target, timedelta(seconds=3), lines=1000)
    growth.begin()
    assert target.read_text() == "id\n"
    growth.start()
    deadline = time.monotonic() + 60
    while target.read_bytes() != source.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.02)
    growth.stop()
    assert target.read_bytes() == source.read_bytes()
    assert growth.appended[-1].rows == 1000
    assert len(growth.appended) > 3


def test_latency_is_from_the_append_of_a_line_to_the_first_arrival_that_covers_it() -> None:
    appended = [Arrival(0.0, 10), Arrival(1.0, 20), Arrival(2.0, 30)]
    arrived = [Arrival(1.5, 15), Arrival(3.0, 30)]
    found = latency(appended, arrived)
    assert found is not None
    assert found.longest == 2.0  # line 20 waited from 1.0 to 3.0
    assert found.median == 1.5


def test_there_is_no_latency_before_anything_has_arrived() -> None:
    assert latency([Arrival(0.0, 10)], []) is None
