"""The session: set up as data needs it, one per process, silent, and gone with its process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.waiting import until

from headrace.sdk.errors import SetupError
from headrace.sdk.sqltext import CALLS_JAVA, OPENS_FILES
from headrace.settings import Settings, load_settings
from headrace.spark.class_archive import archive_file
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java
from headrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPEN = """
from headrace.spark.session import close_session, open_session
from headrace.sdk.errors import SetupError
from headrace.settings import load_settings

def opened(**values):
    return open_session(load_settings(master="local[1]", **values), short_lived=True)
"""


def python(code: str, *, home: Path, **variables: str) -> subprocess.Popen[str]:
    """Run code in a process of its own, as a session needs one."""
    return subprocess.Popen(
        [sys.executable, "-c", OPEN + code],
        env={**os.environ, "HEADRACE_HOME": str(home), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told_by(process: subprocess.Popen[str], seconds: int = 240) -> tuple[str, str]:
    """What a process prints, and its errors; it is killed when it takes too long."""
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


def output(code: str, *, home: Path, seconds: int = 240, **variables: str) -> list[str]:
    """What code prints, when all goes well and nothing else is printed."""
    process = python(code, home=home, **variables)
    out, error = told_by(process, seconds)
    assert (process.returncode, error) == (0, "")
    return out.splitlines()


def interpreters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})


def test_python_workers_run_this_interpreter(spark: "SparkSession") -> None:
    rows = spark.range(1).mapInArrow(interpreters, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyspark

    of_ours = "headrace.dataplane" in sys.modules
    parent = " ".join(psutil.Process(os.getppid()).cmdline())
    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"file": [pyspark.__file__], "of_ours": [of_ours], "parent": [parent]}
        )


def test_python_workers_begin_with_what_their_daemon_has_imported(
    spark: "SparkSession",
) -> None:
    """What pickle takes by its name would be imported by the first task of a worker."""
    import pyspark

    columns = "file string, of_ours boolean, parent string"
    [row] = spark.range(1).mapInArrow(imported, columns).collect()
    assert (row.file, row.of_ours) == (pyspark.__file__, True)
    assert "headrace.python_daemon" in row.parent


def test_a_daemon_of_the_user_starts_the_workers(tmp_path: Path) -> None:
    code = """
def parents(batches):
    import os, psutil, pyarrow
    for _ in batches:
        command = psutil.Process(os.getppid()).cmdline()
        yield pyarrow.RecordBatch.from_pydict({"p": [command[command.index("-m") + 1]]})

spark = opened(spark_conf={"spark.python.daemon.module": "pyspark.daemon"})
print(spark.range(1).mapInArrow(parents, "p string").collect()[0].p)
"""
    assert output(code, home=tmp_path) == ["pyspark.daemon"]


def test_a_timestamp_without_a_zone_is_utc(spark: "SparkSession") -> None:
    [row] = spark.sql("SELECT unix_timestamp('1970-01-01 00:00:01') AS at").collect()
    assert row["at"] == 1


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, "('java.lang.System', 'getProperty', 'user.home')") for name in CALLS_JAVA),
        ("schema_of_avro", "('int', map('avroSchemaUrl', '/etc/hostname'))"),
        ("from_protobuf", "(X'00', 'A', '/etc/hostname')"),
        ("from_xml", "('<a>1</a>', 'a INT', map('rowValidationXSDPath', '/etc/hostname'))"),
        ("schema_of_xml", "('<a>1</a>', map('rowValidationXSDPath', '/etc/hostname'))"),
        *((name, "('<a/>', 'a')") for name in OPENS_FILES if name.startswith("xpath")),
    ],
)
def test_sql_calls_no_java_and_opens_no_files_under_whatever_name(
    spark: "SparkSession", name: str, call: str
) -> None:
    for session in (spark, spark.newSession()):
        for named in (name, f"IDENTIFIER('{name[:3]}' || '{name[3:]}')"):
            with pytest.raises(PySparkException, match="UNRESOLVED_ROUTINE"):
                session.sql(f"SELECT {named}{call}")


def test_a_delta_table_is_written_and_read(spark: "SparkSession", tmp_path: Path) -> None:
    spark.range(10).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 10


def test_timestamps_are_written_as_microseconds(spark: "SparkSession", tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    spark.sql("SELECT current_timestamp() AS at").write.parquet(str(tmp_path / "t"))
    assert pq.read_schema(next((tmp_path / "t").glob("*.parquet"))).field("at").type == (
        pa.timestamp("us", tz="UTC")
    )


def test_asking_again_gives_the_same_session(
    spark: "SparkSession", session_settings: Settings
) -> None:
    assert open_session(session_settings, app_name="headrace-tests", short_lived=True) is spark


def test_asking_for_other_settings_names_what_differs(
    spark: "SparkSession", session_settings: Settings
) -> None:
    other = session_settings.model_copy(update={"spark_conf": {"spark.a": "b"}})
    with pytest.raises(SetupError, match=r"spark\.a would differ"):
        open_session(other, app_name="headrace-tests", short_lived=True)
    assert spark.range(3).count() == 3


def test_spark_says_nothing_on_the_terminal(tmp_path: Path) -> None:
    code = """
spark = opened()
print(spark.range(10).repartition(2).mapInArrow(lambda batches: batches, "id long").count())
"""
    assert output(code, home=tmp_path) == ["10"]
    assert (tmp_path / "logs" / "spark.log").is_file()
    assert (tmp_path / "logs" / "jvm.log").stat().st_mode & 0o077 == 0


def test_a_session_can_be_closed_and_another_opened(tmp_path: Path) -> None:
    code = """
import psutil
print(opened().conf.get("spark.sql.ansi.enabled"))
close_session()
print(len(psutil.Process().children()))
print(opened(spark_conf={"spark.sql.ansi.enabled": "false"}).conf.get("spark.sql.ansi.enabled"))
"""
    assert output(code, home=tmp_path) == ["true", "0", "false"]


def test_a_session_whose_java_died_is_replaced(tmp_path: Path) -> None:
    code = """
import psutil
first = opened()
for child in psutil.Process().children():
    child.kill()
    child.wait()
print(opened() is first, opened().range(3).count())
"""
    # Py4J logs an error where a thread has asked the Java that was killed.
    process = python("import logging\nlogging.disable()\n" + code, home=tmp_path)
    assert told_by(process) == ("False 3\n", "")


def test_the_temporary_files_of_a_java_that_died_go_with_it(tmp_path: Path) -> None:
    code = """
import os, psutil, tempfile
tempfile.tempdir = os.environ["HEADRACE_HOME"]
def left():
    names = [name for _, names, _ in os.walk(tempfile.tempdir) for name in names]
    return sum("blockmgr" in name for name in names)
opened().range(3).repartition(2).count()
for child in psutil.Process().children():
    child.kill()
    child.wait()
killed = left()
opened()
again = left()
close_session()
print(killed, again, left())
"""
    assert output(code, home=tmp_path) == ["1 1 0"]


@pytest.mark.parametrize(("deep", "expected"), [("", "sockets True False"), ("d" * 60, "tcp")])
def test_python_workers_are_reached_by_sockets_in_a_folder_of_ours(
    deep: str, expected: str
) -> None:
    """The path of a socket has to be short, as those of pytest's folders are not."""
    code = f"""
import os, tempfile
tempfile.tempdir = os.path.join(os.environ["HEADRACE_HOME"], {deep!r})
os.makedirs(tempfile.tempdir, exist_ok=True)
spark = opened()
assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
folder = spark.conf.get("spark.python.unix.domain.socket.dir", None)
found = [] if folder is None else [n for n in os.listdir(folder) if n.endswith(".sock")]
close_session()
if folder is None:
    print("tcp")
else:
    print("sockets", bool(found), os.path.exists(folder))
"""
    with TemporaryDirectory(prefix="hr-", dir="/tmp") as home:
        assert output(code, home=Path(home)) == [expected]


def test_a_secret_reaches_spark_but_not_the_command_line(tmp_path: Path) -> None:
    code = """
import psutil
spark = opened(spark_conf={"spark.my.password": "hush-hush", "spark.my.name": "me"})
print(spark.conf.get("spark.my.password"), spark.conf.get("spark.my.name"))
print("hush-hush" in str([child.cmdline() for child in psutil.Process().children()]))
"""
    assert output(code, home=tmp_path) == ["hush-hush me", "False"]


def test_a_session_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    code = """
from pyspark.sql import SparkSession
import headrace.spark.jvm as gateway
with gateway.spark_environment(gateway.find_java()):
    conf = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
    SparkSession.builder.config(map=conf).getOrCreate()
try:
    opened()
except SetupError as error:
    print(error.problem)
"""
    process = python(code, home=tmp_path)
    out, _ = told_by(process)
    assert "that Headrace did not start" in out


def test_java_that_does_not_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    code = """
try:
    opened(driver_memory="1k")
except SetupError as error:
    print(error)
"""
    told = "\n".join(output(code, home=tmp_path))
    assert "Too small maximum heap" in told or "System memory" in told
    assert "driver_memory" in told


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_java_does_not_outlive_its_python(tmp_path: Path, how: signal.Signals) -> None:
    code = """
import psutil, time
opened()
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(100)
"""
    process = python(code, home=tmp_path)
    assert process.stdout is not None
    java = psutil.Process(int(process.stdout.readline()))
    process.send_signal(how)
    told_by(process)
    _, alive = psutil.wait_procs([java], timeout=120)
    assert alive == []


def test_java_does_not_outlive_an_interrupted_start(tmp_path: Path) -> None:
    code = """
import contextlib, os, psutil, signal, threading, time
def interrupt():
    found = []
    while not found:
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [p for p in psutil.Process().children() if "pyspark-shell" in p.cmdline()]
    print(found[0].pid, flush=True)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
opened()
"""
    process = python(code, home=tmp_path)
    assert process.stdout is not None
    java = int(process.stdout.readline())
    told_by(process)
    until(lambda: not psutil.pid_exists(java), seconds=120)


def test_a_class_archive_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(load_settings().cache / "jars")
    java = find_java()
    jars = JarCache(folder=cache / "jars", java=java, spark_conf={}).resolve(locked_jars())
    archive = archive_file(cache, java, jars)
    archive.parent.mkdir()
    archive.write_bytes(b"not an archive")
    code = "print(opened().range(3).count())"
    assert output(code, home=tmp_path, HEADRACE_CACHE=str(cache)) == ["3"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_set_up_makes_everything_once(tmp_path: Path) -> None:
    code = """
from headrace.spark.class_archive import prepare
for _ in range(2):
    prepare(load_settings(), print)
    print("done")
"""
    steps = output(code, home=tmp_path, seconds=800, HEADRACE_CACHE=str(tmp_path / "cache"))
    first, second = steps[: steps.index("done")], steps[steps.index("done") + 1 : -1]
    assert sum("fetching" in step for step in first) == len(locked_jars())
    assert any("creating" in step for step in first)
    assert not any("fetching" in step or "creating" in step for step in second)
    assert len(list((tmp_path / "cache" / "archive").glob("*.jsa"))) == 1


@pytest.mark.parametrize("wrong", ["CAST('x' AS INT)", "no_such_column"])
def test_an_error_of_a_query_is_raised_and_not_printed_as_well(
    spark: "SparkSession", capfd: pytest.CaptureFixture[str], wrong: str
) -> None:
    with pytest.raises(PySparkException):
        spark.range(1).selectExpr(wrong).collect()
    assert capfd.readouterr() == ("", "")
