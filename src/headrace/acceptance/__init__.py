"""The runtime for the acceptance kit of connectors, as pytest fixtures.

In it: real batches with a plugin under test. Never: checks, which belong to the kit.
pytest finds this module by its entry point, in every project that has Headrace installed,
so it imports nothing heavy before a fixture is used. A project with its own Spark session
for tests overrides ``headrace_spark``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headrace.acceptance.harness import Harness

__all__ = ["headrace_harness", "headrace_spark"]


@pytest.fixture(scope="session")
def headrace_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the Spark session of the test run."""
    from headrace.settings import load_settings  # noqa: PLC0415 - see above
    from headrace.spark import close_session, open_session  # noqa: PLC0415 - see above

    home = tmp_path_factory.mktemp("headrace")
    yield open_session(load_settings(master="local[2]", home=home))
    close_session()


@pytest.fixture
def headrace_harness(headrace_spark: SparkSession) -> Iterator[Harness]:
    """Yield the harness that the kit runs connectors in."""
    import structlog  # noqa: PLC0415 - see above

    from headrace.acceptance.harness import Harness  # noqa: PLC0415 - see above

    # By default structlog prints to stdout, like the connector under test. sys.stderr must be
    # read for each line, as pytest replaces it for each phase of a test.
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    yield Harness(headrace_spark)
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)
