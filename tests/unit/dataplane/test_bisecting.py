"""Finding refused records: exactly those, whatever the sink says and however it finds out."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.no_keys import NO_KEYS

from headrace.dataplane.sinks import PartBisection, Spool, put_records
from headrace.sdk import (
    BatchSink,
    HeadraceError,
    Record,
    RecordSink,
    RejectedError,
    RetriableError,
    SinkError,
)

SCHEMA = pa.schema([("n", pa.int64())])


class Strings(RecordSink):
    """Takes all but some values; says so by ``put`` or only by ``flush``."""

    rejects = (ValueError,)

    def __init__(self, bad: set[int], *, late: bool = False, names: bool = False) -> None:
        self.bad, self.late, self.names = bad, late, names
        self.buffer: list[int] = []
        self.taken: list[int] = []

    def put(self, records: Sequence[Record]) -> None:
        values = [record.value for record in records]
        if self.names:
            wrong = {n: ValueError(f"bad {v}") for n, v in enumerate(values) if v in self.bad}
            self.buffer += [value for value in values if value not in self.bad]
            if wrong:
                raise RejectedError(wrong)
            return
        if not self.late:
            self._check(values)
        self.buffer += values

    def flush(self) -> None:
        buffer, self.buffer = self.buffer, []
        if self.late:
            self._check(buffer)
        self.taken += buffer

    def _check(self, values: list[int]) -> None:
        for value in values:
            if value in self.bad:
                message = f"bad {value}"
                raise ValueError(message)


def records(count: int) -> list[Record]:
    return [Record(topic="t", value=n) for n in range(count)]


@given(bad=st.sets(st.integers(0, 40)), how=st.sampled_from(["put", "flush", "names"]))
def test_a_record_sink_gets_every_good_record_and_no_bad_one_stays(
    bad: set[int], how: str
) -> None:
    sink = Strings(bad, late=how == "flush", names=how == "names")
    found = put_records(sink, records(37))
    assert {n: str(error) for n, error in found.items()} == {
        n: f"bad {n}" for n in bad if n < 37
    }
    assert sink.taken == [n for n in range(37) if n not in bad]


@pytest.mark.parametrize("error", [RetriableError("busy"), OSError("down")])
def test_an_outage_is_no_refusal(error: Exception) -> None:
    class Down(RecordSink):
        rejects = (ValueError, HeadraceError)

        def put(self, records: Sequence[Record]) -> None:
            raise error

    with pytest.raises(type(error)):
        put_records(Down(NO_KEYS), records(5))


def test_a_rejection_of_records_that_were_not_given_is_an_error_of_the_sink() -> None:
    class Wrong(Strings):
        def put(self, records: Sequence[Record]) -> None:
            raise RejectedError({7: ValueError("x")})

    with pytest.raises(SinkError, match="the rows \\[7\\] of 3"):
        put_records(Wrong(set()), records(3))


class Parts(BatchSink):
    """Writes a part unless it holds a bad value, or two equal ones."""

    rejects = (ValueError,)

    def __init__(self, bad: set[int], *, names: bool = False, early: bool = False) -> None:
        self.bad, self.names, self.early = bad, names, early
        self.attempts = 0

    def write(self, rows, batch, part):
        self.attempts += 1
        values: list[int] = []
        for each in rows:
            values += each.column(0).to_pylist()
            if self.early:
                self._check(values)
        self._check(values)
        return {"values": values}

    def _check(self, values: list[int]) -> None:
        wrong = {n: ValueError(f"bad {v}") for n, v in enumerate(values) if v in self.bad}
        if wrong and self.names:
            raise RejectedError(wrong)
        for error in wrong.values():
            raise error
        if len(set(values)) < len(values):
            message = "twice"
            raise ValueError(message)

    def commit(self, messages, batch, receipt) -> None: ...

    def committed(self, mark, topic):
        return None


def batches(values: Sequence[int], length: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(values), length):
        part = list(values[start : start + length])
        yield pa.RecordBatch.from_pydict({"n": part}, schema=SCHEMA)


def bisected(sink: Parts, values: Sequence[int], length: int = 7):
    with Spool(batches(values, length), SCHEMA) as spool:
        bisection = PartBisection(sink, spool, lambda rows: sink.write(rows, None, "p"))
        message = bisection.run()
    return message["values"], {n: str(error) for n, error in bisection.refused.items()}


@given(
    bad=st.sets(st.integers(0, 60)),
    how=st.sampled_from(["all", "early", "names"]),
    length=st.integers(1, 70),
)
def test_a_part_is_without_the_refused_rows_and_no_other(
    bad: set[int], how: str, length: int
) -> None:
    sink = Parts(bad, names=how == "names", early=how == "early")
    kept, refused = bisected(sink, range(53), length)
    assert kept == [n for n in range(53) if n not in bad]
    assert refused == {n: f"bad {n}" for n in bad if n < 53}


@given(values=st.lists(st.integers(0, 8), max_size=40))
def test_rows_that_refuse_each_other_are_kept_once(values: list[int]) -> None:
    kept, refused = bisected(Parts({0}), values)
    assert sorted(kept) == sorted(set(values) - {0})
    assert len(kept) + len(refused) == len(values)


def test_a_good_part_is_written_once() -> None:
    sink = Parts(set())
    assert bisected(sink, range(20)) == (list(range(20)), {})
    assert sink.attempts == 1


def test_a_sink_that_refuses_a_part_without_rows_fails() -> None:
    class Never(Parts):
        def write(self, rows, batch, part):
            message = "no such table"
            raise ValueError(message)

    with pytest.raises(ValueError, match="no such table"):
        bisected(Never(set()), range(5))
