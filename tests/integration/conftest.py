"""What the tests of whole runs share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.runtime.app import Runtime
from headrace.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runtime(spark: "SparkSession", tmp_path: Path) -> Iterator[Runtime]:
    """A runtime with a home of its own, on everyone's session."""
    with Runtime(load_settings(home=tmp_path / "home")) as opened:
        opened.spark = spark
        yield opened
        del opened.spark  # it is not the runtime's to close
