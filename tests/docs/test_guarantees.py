"""The page on guarantees names tests and code that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
_REFERENCE = re.compile(r"`((?:tests|src)/[\w/]+\.py(?:::\w+)?)`")


@pytest.mark.parametrize("reference", sorted(set(_REFERENCE.findall(PAGE.read_text()))))
def test_what_the_page_names_is_there(reference: str) -> None:
    file, _, name = reference.partition("::")
    text = (ROOT / file).read_text()
    assert not name or f"def {name}(" in text


def test_each_fault_of_the_table_names_its_test_and_its_code() -> None:
    section = PAGE.read_text().partition("## Faults that were found")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| \w+: ", line)]
    assert len(rows) == 25
    for row in rows:
        kinds = [reference.split("/")[0] for reference in _REFERENCE.findall(row)]
        assert kinds == ["tests", "src"], row
