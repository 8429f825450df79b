"""The counts of a batch that goes to several sinks."""

from headrace.model import Counts

WHOLE = Counts(read=10, written=10)
PART = Counts(read=10, written=7, rejected=3, causes={"TASK_PUT X": 3})


def test_sinks_that_took_the_same_have_one_count() -> None:
    assert Counts.of_sinks([WHOLE, WHOLE]) == WHOLE
    assert Counts.of_sinks([PART]) == PART
    assert Counts.of_sinks([]) == Counts()


def test_the_counts_are_those_of_the_sink_that_took_the_fewest() -> None:
    counts = Counts.of_sinks([PART, WHOLE])
    assert counts.balanced
    assert (counts.written, counts.rejected, counts.causes) == (7, 3, PART.causes)
    assert counts.sinks == {
        "0": {"written": 7, "rejected": 3},
        "1": {"written": 10, "rejected": 0},
    }
    assert Counts.from_json(counts.to_json()) == counts


def test_the_counts_of_each_sink_add_up_over_batches_that_did_and_did_not_differ() -> None:
    total = Counts().plus(WHOLE).plus(Counts.of_sinks([PART, WHOLE])).plus(WHOLE)
    assert (total.read, total.written, total.rejected) == (30, 27, 3)
    assert total.sinks == {
        "0": {"written": 27, "rejected": 3},
        "1": {"written": 30, "rejected": 0},
    }
