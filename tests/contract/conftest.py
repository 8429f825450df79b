"""What the contract suites run on: the test run's own Spark session, and real databases."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.postgresql_server import STORE, PostgresqlServer

from headrace.store import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def headrace_spark(spark: "SparkSession") -> "SparkSession":
    return spark


@pytest.fixture
def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    """Return a function that gives a new place for a store: ``sqlite`` or ``postgresql``."""
    with ExitStack() as made:

        def place(kind: str) -> Place:
            if kind == "sqlite":
                return tmp_path / "store.db"
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            return made.enter_context(server.database(STORE))

        yield place
