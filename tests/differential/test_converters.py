"""Kafka Connect's converters, beside ours, on random values and bytes."""

import pytest
from pyspark.sql import SparkSession
from tests.differential.accepted_conversions import is_accepted_conversion
from tests.differential.converter_cases import KINDS, VALUES, conversions
from tests.differential.converting import Converting, asked
from tests.differential.oracle import Oracle
from tests.differential.test_transforms import COUNT, told

pytestmark = [pytest.mark.differential, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_converter_does_what_kafkas_does(
    oracle: Oracle, spark: SparkSession, kind: str
) -> None:
    converting = Converting(spark)
    found = [
        difference
        for case in conversions(kind, COUNT // VALUES)
        for difference in converting.differences(case, asked(oracle, case))
        if not is_accepted_conversion(difference)
    ]
    assert not found, f"{len(found)} of {COUNT} values differ:\n{told(found)}"
