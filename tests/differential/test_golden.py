"""What Kafka Connect made of a few records, recorded, beside what ours makes of them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.differential.accepted import ACCEPTED, is_accepted
from tests.differential.accepted_conversions import (
    ACCEPTED_CONVERSIONS,
    is_accepted_conversion,
)
from tests.differential.cases import MAKERS
from tests.differential.comparing import Headrace
from tests.differential.converting import Converting
from tests.differential.golden import golden, golden_conversions

NOT_COMPARED = {
    "A time is not rounded in silence",
    "Headers are texts",
    "What Kafka Connect cannot write",
}


@pytest.mark.parametrize("transform", sorted(MAKERS))
def test_a_transform_does_what_kafkas_did(headrace: Headrace, transform: str) -> None:
    for case, kafka in golden(transform):
        for difference in headrace.differences(case, kafka):
            assert is_accepted(difference), difference


def test_a_converter_does_what_kafkas_did(spark: SparkSession) -> None:
    converting = Converting(spark)
    for case, kafka in golden_conversions():
        for difference in converting.differences(case, kafka):
            assert is_accepted_conversion(difference), difference


def test_the_page_lists_the_differences_that_are_accepted() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "explanation" / "kafka-connect-differences.md").read_text()
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    every = (*ACCEPTED, *ACCEPTED_CONVERSIONS)
    told = {accepted.title for accepted in every} | NOT_COMPARED
    assert sorted(titles) == sorted(told)
