"""What the contract suites run on: a Spark session, real databases, and a served REST API."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from tests.contract.commands import Commands
from tests.contract.connect_server import Server, serving
from tests.contract.v1_client import V1, v1_client
from tests.postgresql_server import STORE, PostgresqlServer
from tests.unit.worker.reconciled import Reconciled
from tests.unit.worker.scripts import now

from headrace.control import Connectors
from headrace.plugins import Registry
from headrace.store import Place, memory_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def headrace_spark(spark: "SparkSession") -> "SparkSession":
    return spark


@pytest.fixture(autouse=True)
def _patient(patient: None) -> None:
    """All connectors of these suites keep their promises."""


@pytest.fixture
def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    """Give a place for a store: ``memory``, ``sqlite`` or ``postgresql``."""
    with ExitStack() as made:

        def place(kind: str) -> Place:
            if kind == "memory":
                return memory_database()
            if kind == "sqlite":
                return tmp_path / "store.db"
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            return made.enter_context(server.database(STORE))

        yield place


@pytest.fixture(scope="module")
def connectors() -> Connectors:
    """Return connectors that no worker looks after."""
    behind = Reconciled()
    return Connectors(
        store=behind.wanted, task_store=behind.state_store, registry=Registry(), clock=now
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    """Serve Kafka Connect's API to the tests of a module, without Spark."""
    with serving() as made:
        yield made


@pytest.fixture
def server(served: Server) -> Iterator[Server]:
    """Return the server that is served; each test leaves it empty."""
    yield served
    served.empty()


@pytest.fixture(scope="module")
def served_v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V1]:
    """Serve our own API beside Kafka Connect's to the tests of a module, without Spark."""
    with v1_client(tmp_path_factory.mktemp("v1")) as made:
        yield made


@pytest.fixture
def v1(served_v1: V1) -> Iterator[V1]:
    """Return a client of our own API; each test leaves its server empty."""
    yield served_v1
    served_v1.server.empty()


@pytest.fixture
def terminal(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Commands:
    """Return where commands are given to the server, in a folder and a home of their own."""
    monkeypatch.setenv("HEADRACE_SERVER", server.url)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    # The server is in this process, and must not write into what commands print.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    return Commands(server, capsys)
