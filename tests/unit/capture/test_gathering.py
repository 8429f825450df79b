"""Where a source stands after what was gathered."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.capture_thread import Gathering
from headrace.capture.process import CaptureSpec, Pace
from headrace.sdk import Position, Record


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=6), max_size=4))
def test_it_stands_where_moving_with_each_record_would_lead(
    polls: list[list[tuple[int, bool]]],
) -> None:
    shared = [{"p": number} for number in range(3)]
    gathering, expected = Gathering(Position()), Position()
    offset = 0
    for poll in polls:
        records = []
        for number, copied in poll:
            offset += 1
            partition = dict(shared[number]) if copied else shared[number]
            records.append(
                Record("t", 1, source_partition=partition, source_offset={"o": offset})
            )
            expected = expected.moved(partition, {"o": offset})
        gathering.add(records)
    assert gathering.end == expected
    assert gathering.rows == len(gathering.records)
    assert gathering.empty == (not offset)


def test_it_is_full_at_the_most_rows() -> None:
    gathering = Gathering(Position())
    gathering.add([Record("t", 1)])
    assert not gathering.full(Pace(max_rows=2))
    gathering.add([Record("t", 1)])
    assert gathering.full(Pace(max_rows=2))


def test_a_spec_survives_the_pipe_and_shows_no_configuration() -> None:
    spec = CaptureSpec(
        connector="c",
        task=1,
        class_path="m.C",
        config={"password": "hunter22"},
        application="a",
        topics_dir="/t",
        topic="t",
        scratch="/s",
        pace=Pace(linger_ms=7),
    )
    assert CaptureSpec.from_json(spec.to_json()) == spec
    assert "hunter22" not in repr(spec)
