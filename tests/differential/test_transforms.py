"""Every transform and predicate of Kafka Connect, beside ours, on random records.

`make test-long ARGS="-m differential"` runs it; a failure shows one difference of each kind.
"""

import json
from collections.abc import Iterable

import pytest
from tests.differential.accepted import is_accepted
from tests.differential.cases import MAKERS, RECORDS, cases
from tests.differential.comparing import Difference, Headrace
from tests.differential.oracle import Oracle

pytestmark = [pytest.mark.differential, pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 5_000
SHOWN = 20
WIDTH = 600


@pytest.mark.parametrize("transform", sorted(MAKERS))
def test_a_transform_does_what_kafkas_does(
    oracle: Oracle, headrace: Headrace, transform: str
) -> None:
    found = [
        difference
        for case in cases(transform, COUNT // RECORDS)
        for difference in headrace.differences(
            case, oracle.chain([case.step], case.records, sink=case.sink)
        )
        if not is_accepted(difference)
    ]
    assert not found, f"{len(found)} of {COUNT} records differ:\n{told(found)}"


def told(found: Iterable[Difference]) -> str:
    """Show one difference of each kind."""
    kinds = {
        (difference.what, json.dumps(sorted(difference.step["config"]))): difference
        for difference in found
    }
    return "\n".join(
        f"- {difference.what}\n"
        + "".join(
            f"    {name}: {json.dumps(getattr(difference, name), ensure_ascii=False)[:WIDTH]}\n"
            for name in ("step", "record", "theirs", "ours")
        )
        for difference in list(kinds.values())[:SHOWN]
    )
