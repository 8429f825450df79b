"""Marks tell attempts and ranges apart by the receipts that targets keep."""

import json

import pytest

from headrace.sdk import Mark
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.mark import receipt_figures, receipt_of_all

MINE = Mark("app", 7, 2, "range")


def test_a_receipt_has_the_figures_and_names_its_attempt():
    receipt = MINE.receipt({"read": 3, "causes": {"a": 1}})
    assert receipt_figures(receipt) == {"read": 3, "causes": {"a": 1}}
    assert json.loads(receipt)["attempt"] == {"epoch": 2, "range": "range"}


def test_only_the_attempt_that_wrote_a_receipt_takes_it_for_its_own():
    assert MINE.wrote(MINE.receipt({}))
    assert not MINE.wrote(None)


@pytest.mark.parametrize(
    "found",
    [
        Mark("app", 7, 1, "range").receipt({}),
        Mark("app", 7, 2, "other").receipt({}),
        "",
        "text of another program",
        '{"read": 3}',
        "[1]",
    ],
)
def test_a_receipt_of_anybody_else_is_refused(found: str):
    with pytest.raises(StaleEpochError):
        MINE.wrote(found)


def test_a_batch_that_runs_again_takes_receipts_of_its_range_from_any_attempt():
    MINE.require_range(Mark("app", 7, 1, "range").receipt({}))
    MINE.require_range("")  # forgotten
    MINE.require_range('{"read": 3}')  # of an older version
    with pytest.raises(StaleEpochError, match="batch 7 of app"):
        MINE.require_range(Mark("app", 7, 1, "other").receipt({}))


def test_the_receipt_of_several_targets_is_that_of_the_last_commit():
    older, newer = (
        [Mark("app", 7, epoch).receipt({"target": name}) for name in "ab"] for epoch in (1, 2)
    )
    assert receipt_of_all([older[0], None]) is None
    assert receipt_of_all([older[0], newer[1]]) == newer[1]
    assert receipt_of_all([newer[0], older[1]]) == newer[0]
    assert receipt_of_all(older) == older[1]
    assert receipt_of_all(["", ""]) == ""
