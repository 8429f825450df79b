"""Which sink letters go to that one of several has refused."""

from typing import Any

import pytest

from headrace.dataplane.dead_letter_queue import sink_of

NAMED = {"sink": 1, "sink_name": "b"}


@pytest.mark.parametrize(
    ("told", "sinks", "sink"),
    [
        ({"sink": None, "sink_name": None}, ["a", "b"], None),
        (NAMED, ["a", "b"], "b"),
        (NAMED, ["b", "c", "a"], "b"),
        (NAMED, ["b"], "b"),
        ({"sink": 0, "sink_name": ""}, [""], ""),
    ],
)
def test_a_sink_is_found_by_its_name(
    told: dict[str, Any], sinks: list[str], sink: str | None
) -> None:
    assert sink_of(told, sinks) == sink


@pytest.mark.parametrize(
    ("told", "sinks"),
    [
        (NAMED, ["a"]),
        (NAMED, ["a", "c"]),
        ({"sink": 0, "sink_name": ""}, ["a"]),
        ({"sink": 0}, ["a"]),
    ],
)
def test_a_sink_that_is_gone_or_has_no_name_is_no_other(
    told: dict[str, Any], sinks: list[str]
) -> None:
    with pytest.raises(LookupError):
        sink_of(told, sinks)
