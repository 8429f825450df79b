"""Both sides of the comparison."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.differential.comparing import Headrace
from tests.differential.oracle import Oracle

from headrace.plugins import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import Settings


@pytest.fixture(scope="session")
def oracle(session_settings: "Settings") -> Iterator[Oracle]:
    """Kafka Connect's classes."""
    with Oracle(session_settings) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def headrace(spark: "SparkSession") -> Headrace:
    """Headrace's transforms."""
    return Headrace(spark, Registry())
