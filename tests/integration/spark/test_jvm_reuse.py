"""A JVM that a command leaves: the next one's alone, and gone with whoever owns it."""

import io
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psutil
import pytest
from tests.waiting import until

from headrace.spark.jvm import Scratch
from headrace.spark.jvm_reuse import IS_POSSIBLE, MOST_USES, Place, TakenProcess

pytestmark = pytest.mark.skipif(
    not IS_POSSIBLE, reason="only Linux has descriptors of processes"
)

COMMAND = """
import sys, time
from datetime import timedelta
from headrace.settings import load_settings
from headrace.spark import jvm_reuse
from headrace.spark.session import close_session, open_session

jvm_reuse._PATIENCE = float(sys.argv[2])
idle = timedelta(seconds=float(sys.argv[1]))
spark = open_session(load_settings(), short_lived=True, idle=idle)
print(spark.sparkContext._gateway.proc.pid, flush=True)
"""
END = "close_session()\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for sockets; what still waits there is ended."""
    with TemporaryDirectory(prefix="kept-") as found:
        yield Path(found)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TMPDIR") == found:
                    process.kill()
                    process.wait(20)


def command(
    folder: Path,
    code: str = "",
    idle: float = 60,
    master: str = "local[1]",
    patience: float = 60,
    **variables: str,
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND + code + END, str(idle), str(patience)],
        cwd=folder,
        env=os.environ
        | {
            "TMPDIR": str(folder),
            "HEADRACE_HOME": str(folder / "home"),
            "HEADRACE_MASTER": master,
        }
        | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def java_of(begun: "subprocess.Popen[str]") -> psutil.Process:
    assert begun.stdout is not None
    return psutil.Process(int(begun.stdout.readline()))


def ended(begun: "subprocess.Popen[str]") -> list[str]:
    """What else a command prints, when it has ended well."""
    out, error = begun.communicate(timeout=120)
    assert begun.returncode == 0, error
    assert error == ""
    return out.splitlines()


def left(folder: Path, patience: float = 60) -> psutil.Process:
    """Run a command, and return the Java that it has left."""
    begun = command(folder, patience=patience)
    java = java_of(begun)
    ended(begun)
    return java


def gone(processes: list[psutil.Process], seconds: float = 120) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def keepers(folder: Path) -> list[psutil.Process]:
    return [
        p
        for p in psutil.process_iter(["cmdline"])
        if "jvm_keeper.py" in str(p.info) and str(folder) in str(p.info)
    ]


def of_us(folder: Path) -> list[Path]:
    return sorted((folder / f"headrace-{os.getuid()}").iterdir())


def test_a_command_uses_the_java_that_another_has_left_and_meets_nothing_of_it(
    folder: Path,
) -> None:
    first = command(
        folder,
        'spark.range(1).write.format("delta").save("table")\n'
        'spark.read.format("delta").load("table").createOrReplaceTempView("seen")\n'
        'spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")\n',
    )
    java = java_of(first)
    ended(first)
    shutil.rmtree(folder / "table")
    second = command(
        folder,
        'spark.range(2).write.format("delta").save("table")\n'
        'print(spark.read.format("delta").load("table").count(), spark.catalog.listTables())\n'
        'print(spark.conf.get("spark.sql.session.timeZone"))\n'
        'print(spark.catalog.functionExists("java_method"))\n',
    )
    assert java_of(second) == java
    assert ended(second) == ["2 []", "UTC", "False"]
    assert java.is_running()
    root = folder / f"headrace-{os.getuid()}"
    assert root.stat().st_mode & 0o777 == 0o700

    other = command(folder, PGPASSWORD="of a connector")
    assert java_of(other) != java
    ended(other)
    assert gone([java]), "of those that wait one is enough"


def test_it_ends_with_a_command_that_is_killed(folder: Path) -> None:
    java = left(folder)
    killed = command(folder, "time.sleep(100)\n")
    assert java_of(killed) == java
    killed.kill()
    killed.communicate()
    assert gone([java])
    assert left(folder) != java


def test_only_one_of_two_commands_gets_it(folder: Path) -> None:
    java = left(folder)
    both = [command(folder, "sys.stdin.readline()\n") for _ in range(2)]
    found = [java_of(each) for each in both]
    assert java in found
    assert len(set(found)) == 2
    for each in both:
        ended(each)
    until(lambda: sum(each.is_running() for each in found) == 1)


def test_it_ends_when_no_command_comes_and_leaves_no_file(folder: Path) -> None:
    begun = command(folder, idle=0.5)
    java = java_of(begun)
    ended(begun)
    assert gone([java, *keepers(folder)])
    assert [each.name for each in of_us(folder)] == ["java.leaving"]


def test_it_ends_with_its_terminal_and_leaves_no_file(folder: Path) -> None:
    java = left(folder)
    found = keepers(folder)
    for each in found:
        each.send_signal(signal.SIGHUP)
    assert gone([java, *found])
    assert [each.name for each in of_us(folder)] == ["java.leaving"]


def test_one_that_died_meanwhile_is_not_handed_over(folder: Path) -> None:
    java = left(folder)
    java.kill()
    assert left(folder) != java


def test_one_that_does_not_answer_is_replaced(folder: Path) -> None:
    java = left(folder)
    java.suspend()
    assert left(folder, patience=5) != java
    assert gone([java])


FAILED = """
from contextlib import suppress
slow = "aggregate(sequence(1, 2000000000), 0L, (a, b) -> a + b)"
sql = f"CASE WHEN id = 0 THEN raise_error('a') ELSE {slow} END"
with suppress(Exception):
    spark.range(0, 2, 1, 2).selectExpr(sql).write.format("noop").mode("append").save()
"""
LOADED = """
spark.sparkContext._jsc.addJar(spark.conf.get("spark.driver.extraClassPath").split(":")[0])
"""


@pytest.mark.parametrize("code", [FAILED, LOADED], ids=["tasks", "driver"])
def test_one_in_which_something_stays_is_not_left(folder: Path, code: str) -> None:
    begun = command(folder, code, master="local[2]")
    java = java_of(begun)
    begun.communicate(timeout=120)
    assert gone([java])


def test_only_a_command_that_would_start_the_same_java_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    conf = {"spark.driver.extraClassPath": str(jar), "spark.app.name": "a"}

    def place() -> Path:
        return Place.of(tmp_path, conf, timedelta(seconds=1)).path

    places = [place()]
    conf["spark.app.name"] = "b"
    monkeypatch.setenv("OLDPWD", "/elsewhere")
    assert place() == places[0]
    os.utime(jar, (1, 1))
    places.append(place())
    monkeypatch.setenv("PGPASSWORD", "of a connector")
    places.append(place())
    monkeypatch.chdir(tmp_path)
    places.append(place())
    before = os.umask(0o077)
    try:
        places.append(place())
    finally:
        os.umask(before)
    conf["spark.driver.memory"] = "2g"
    places.append(place())
    assert len(set(places)) == len(places)


def test_one_that_was_used_often_is_left_no_more(tmp_path: Path) -> None:
    gateway = SimpleNamespace(
        proc=TakenProcess(1, io.BytesIO(), 0, MOST_USES - 1), java_parameters=None
    )
    place = Place(tmp_path / "java-a.socket", timedelta(seconds=1))
    scratch = Scratch.make(tmp_path)
    assert not place.leave(gateway, scratch)
    scratch.remove()


@pytest.mark.parametrize(("idle", "is_left"), [(None, True), ("0", False)])
def test_a_command_leaves_it_for_who_types_the_next(
    folder: Path, idle: str | None, is_left: bool
) -> None:
    (folder / "few.csv").write_text("id\n1\n")
    (folder / "few.yaml").write_text(
        "name: few\nsource: {connector: file, path: few.csv}\nsinks: [{connector: console}]\n"
    )
    ours, terminal = pty.openpty()
    subprocess.run(
        [Path(sys.executable).with_name("headrace"), "preview", "few.yaml"],
        cwd=folder,
        env=os.environ
        | {"TMPDIR": str(folder), "HEADRACE_HOME": str(folder / "home")}
        | ({} if idle is None else {"HEADRACE_JAVA_IDLE": idle}),
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        check=True,
        timeout=120,
    )
    os.close(terminal)
    os.close(ours)
    assert any(each.suffix == ".socket" for each in of_us(folder)) is is_left
