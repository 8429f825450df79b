"""What Kafka Connect made of a few records, recorded, beside what ours makes of them."""

from pathlib import Path

import pytest
from tests.differential.accepted import ACCEPTED, is_accepted
from tests.differential.cases import MAKERS
from tests.differential.comparing import Headrace
from tests.differential.golden import golden


@pytest.mark.parametrize("transform", sorted(MAKERS))
def test_a_transform_does_what_kafkas_did(headrace: Headrace, transform: str) -> None:
    for case, kafka in golden(transform):
        for difference in headrace.differences(case, kafka):
            assert is_accepted(difference), difference


def test_the_page_lists_the_differences_that_are_accepted() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "explanation" / "kafka-connect-differences.md").read_text()
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    told = {accepted.title for accepted in ACCEPTED} | {"What Kafka Connect cannot write"}
    assert sorted(titles) == sorted(told)
