"""Where the counts of a batch come from, and that they must balance."""

from dataclasses import dataclass

import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    Numbers,
    batch,
    condition,
    flow,
    row_of,
    transform,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step
from headrace.model import Counts
from headrace.sdk import Position, SourceError
from headrace.sdk.sink import Counting
from headrace_plugins.transforms.sql import Filter

pytestmark = pytest.mark.spark


class Numbered(Numbers):
    """Rows whose number the source knows, right or wrong."""

    wrong_by = 0

    def rows(self, start: Position, end: Position) -> int:
        return row_of(end) - row_of(start) + self.wrong_by


class Wrong(Numbered):
    wrong_by = 1


@dataclass
class Loses(Kept):
    """A sink that says it wrote one record less than it got."""

    def write(self, frame, batch):
        staged = super().write(frame, batch)
        staged.values = staged.values[1:]
        return staged


def of(counting: Counting, kind: type[Kept] = Kept) -> Kept:
    sink = kind()
    sink.counting = counting  # type: ignore[misc]  # each instance has its own here
    return sink


@pytest.mark.parametrize("counting", Counting)
@pytest.mark.parametrize("source", [Numbers, Numbered])
def test_counts_are_the_same_wherever_they_come_from(spark, counting, source) -> None:
    sink = of(counting)
    counts = flow(spark, [sink], source=FrameReader(source(NO_KEYS))).run(batch(1, 0, 20))
    assert counts == Counts(read=20, written=20)
    assert len(values(sink)) == 20


@pytest.mark.parametrize("counting", Counting)
@pytest.mark.parametrize("source", [Numbers, Numbered])
def test_filtered_records_are_counted_wherever_counts_come_from(
    spark, counting, source
) -> None:
    even = Step(transform(Filter, "even"), condition("id % 2 = 1"))
    reader = FrameReader(source(NO_KEYS))
    counts = flow(spark, [of(counting)], even, source=reader).run(batch(1, 0, 20))
    assert counts == Counts(read=20, written=10, filtered=10, filters={"even": 10})


@pytest.mark.parametrize("source", [Numbers, Numbered])
def test_a_sink_that_claims_less_than_it_got_stops_the_task(spark, source) -> None:
    sink = of(Counting.CLAIMED, Loses)
    with pytest.raises(SourceError, match="read 20 records but wrote 19"):
        flow(spark, [sink], source=FrameReader(source(NO_KEYS))).run(batch(1, 0, 20))
    assert sink.aborted == 1
    assert values(sink) == []


def test_a_source_that_holds_other_rows_than_it_says_stops_the_task(spark) -> None:
    sink = of(Counting.MEASURED)
    with pytest.raises(SourceError, match="read 21 records but wrote 20"):
        flow(spark, [sink], source=FrameReader(Wrong(NO_KEYS))).run(batch(1, 0, 20))
    assert values(sink) == []
