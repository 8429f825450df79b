"""What all tests share: a Spark session, Hypothesis profiles, and a look for leaks."""

import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest
import structlog
from tests import rarely

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.mariadb_server import MariadbServer
    from tests.postgresql_server import PostgresqlServer

    from headrace.settings import Settings

# Children inherit it, and keep it when their parent is gone.
RUN_VARIABLE = "HEADRACE_TEST_RUN"
GRACE_SECONDS = 60
LONG_RUN_SECONDS = 600

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

# The settings of whoever runs the tests are not to change them; the cache of jars is shared,
# and how long the soak lasts and how much is killed are for the tests alone.
for _name in [name for name in os.environ if name.startswith("HEADRACE_")]:
    if _name != "HEADRACE_CACHE" and not _name.startswith(("HEADRACE_SOAK_", "HEADRACE_KILLS")):
        del os.environ[_name]


# What takes long for each test: most start processes, which have to start Spark.
_LONG = (
    Path(__file__).with_name("docs"),
    Path(__file__).with_name("e2e"),
    Path(__file__).parent / "unit" / "topics" / "test_topic_model.py",
)


@pytest.hookimpl(tryfirst=True)  # before those that are not to run are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use the shared Spark session or are long; put the longest first.

    One that begins last runs alone in the end, while the other processes have nothing to do.
    """
    unused = rarely.mark(items)
    if unused and config.args_source is pytest.Config.ArgsSource.TESTPATHS:  # all were found
        problem = f"tests/rarely.py names tests that are not there: {unused}"
        raise pytest.UsageError(problem)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: not any(item.path.is_relative_to(long) for long in _LONG))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which files take the time of a long run, all tests of each together."""
    took: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            took[str(getattr(report, "nodeid", "")).partition("::")[0]] += getattr(
                report, "duration", 0.0
            )
    if (whole := sum(took.values())) < LONG_RUN_SECONDS:
        return
    terminalreporter.section(f"the files that take most of {whole:.0f} s")
    for seconds, name in sorted(((s, n) for n, s in took.items()), reverse=True)[:60]:
        terminalreporter.write_line(f"{seconds:7.1f}s {seconds / whole:6.1%} {name}")


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of our own for whatever reads the settings, in this process and its children."""
    home = tmp_path_factory.mktemp("home")
    os.environ["HEADRACE_HOME"] = str(home)
    yield home
    del os.environ["HEADRACE_HOME"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the acceptance kit wait longer for what keeps its promises, on a busy machine."""
    for name in ("sources", "captures"):
        monkeypatch.setattr(f"headrace.sdk.testing.{name}._MARGIN_SECONDS", 60)
    monkeypatch.setattr("headrace.sdk.testing.suite._SETTLE_SECONDS", 60)


@pytest.fixture(scope="session", autouse=True)
def _no_leaked_process(_home: Path) -> Iterator[None]:
    """Fail at the end if a process that a test started, at any depth, still runs."""
    run = os.environ[RUN_VARIABLE] = f"{os.getpid()}-{time.time_ns()}"
    yield
    end = time.monotonic() + GRACE_SECONDS
    while (left := _processes_of(run)) and time.monotonic() < end:
        time.sleep(0.1)
    names = [" ".join(process.cmdline())[:200] for process in left]
    for process in left:
        process.kill()
    assert not names, f"processes were left running, and are killed now: {names}"


def _processes_of(run: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == run
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # gone meanwhile, or not ours to look at
            continue
    return found


@pytest.fixture(autouse=True)
def _logging_put_back() -> Iterator[None]:
    """Undo what a command does to the process's logging."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    # Servers of a whole module log meanwhile, which is not to be among what a command prints.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.__stderr__))
    yield
    for handler in root.handlers:
        if handler not in before:
            handler.close()
    root.handlers, root.level = before, level
    logging.captureWarnings(capture=False)
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _no_session_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that opens a Spark session unasked: those after it would have to use it."""
    before = _open_session()
    yield
    asked = request.node.get_closest_marker("spark") or "spark" in request.fixturenames
    if not asked and _open_session() is not before:
        sys.modules["headrace.spark.session"].close_session()
        pytest.fail("The test opened a Spark session, and has no marker `spark`.")


def _open_session() -> object:
    return getattr(sys.modules.get("headrace.spark.session"), "_open", None)


@pytest.fixture(scope="session")
def session_settings(_no_leaked_process: None) -> "Settings":
    """The settings that the shared session was opened with."""
    from headrace.settings import load_settings

    return load_settings(master="local[2]", driver_memory="1g")


@pytest.fixture(scope="session")
def spark(session_settings: "Settings") -> Iterator["SparkSession"]:
    """The one Spark session of the test run, as a worker would open it."""
    from headrace.spark.session import close_session, open_session

    # Its jobs are as small as those of a short command; the JVM's second compiler would take
    # a quarter of all processor time, and pay off for none of them.
    yield open_session(session_settings, app_name="headrace-tests", short_lived=True)
    close_session()


@pytest.fixture
def quick_java(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processes of a test that is not long do without the JVM's second compiler."""
    from tests.quick_java import QUICK_JAVA

    if request.node.get_closest_marker("long") is None:
        for name, value in QUICK_JAVA.items():
            monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def warm_programs(_no_leaked_process: None) -> Iterator[Path]:
    """A folder for PATH whose ``headrace`` starts warm."""
    from tests.warm.commands import warm_commands

    with TemporaryDirectory(prefix="warm-") as folder, warm_commands(Path(folder)) as programs:
        yield programs


@pytest.fixture(scope="session")
def postgresql(_no_leaked_process: None) -> Iterator["PostgresqlServer"]:
    """A server with a database that has the store's tables, to make others from."""
    from tests.postgresql_server import STORE, PostgresqlServer

    from headrace.store import Store

    with PostgresqlServer.running() as server:
        server.execute(f"CREATE DATABASE {STORE}")
        Store(server.url(STORE)).close()
        yield server


@pytest.fixture(scope="session")
def mariadb(_no_leaked_process: None) -> Iterator["MariadbServer"]:
    """A server without databases."""
    from tests.mariadb_server import MariadbServer

    with MariadbServer.running() as server:
        yield server
