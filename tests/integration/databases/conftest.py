"""Sources of databases that a test starts, and which stop with it."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from tests.integration.databases.source_reading import Following


@pytest.fixture
def follow(spark: SparkSession) -> Iterator[Callable[..., Following]]:
    """Start a source: of the database of a URL, with keys that have underscores for dots."""
    started: list[Following] = []

    def start(url: str, **texts: str) -> Following:
        started.append(Following(spark, url, **texts))
        return started[-1]

    yield start
    for each in started:
        each.task.stop()
