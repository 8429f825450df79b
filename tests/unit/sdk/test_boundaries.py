"""Boundaries are typed, and written in one way."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Boundaries, BoundaryKind, ConfigError


@pytest.mark.parametrize(
    ("kind", "given", "written"),
    [
        (BoundaryKind.TIME, "2013-01-01T01:00:00+01:00", "2013-01-01T00:00:00+00:00"),
        (BoundaryKind.TIME, "2013-01-01 00:00:00.5Z", "2013-01-01T00:00:00.500000+00:00"),
        (BoundaryKind.OFFSET, '[{"partition": {}, "offset": {"n":  1}}]', None),
        (BoundaryKind.VALUE, "O'Hara", "O'Hara"),
        (BoundaryKind.SNAPSHOT, "007", "7"),
    ],
)
def test_a_bound_is_written_in_one_way(
    kind: BoundaryKind, given: str, written: str | None
) -> None:
    lower = Boundaries(kind, given).lower
    assert lower is not None
    assert lower == (written or lower)
    assert Boundaries(kind, lower).lower == lower


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        (BoundaryKind.TIME, "yesterday"),
        (BoundaryKind.TIME, "2013-01-01T00:00:00"),
        (BoundaryKind.OFFSET, "12"),
        (BoundaryKind.VALUE, ""),
        (BoundaryKind.SNAPSHOT, "1.5"),
    ],
)
def test_what_is_no_bound_is_refused_with_its_field(kind: BoundaryKind, bound: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Boundaries(kind, None, bound)
    assert raised.value.field == "boundaries.upper"
    assert raised.value.fix


@pytest.mark.parametrize(
    ("kind", "lower", "upper"),
    [
        (BoundaryKind.TIME, "2013-01-01T00:00:00Z", "2013-01-01T01:00:00+01:00"),
        (BoundaryKind.TIME, "2013-01-02T00:00:00Z", "2013-01-01T00:00:00Z"),
        (BoundaryKind.SNAPSHOT, "10", "9"),
        (BoundaryKind.VALUE, "a", "a"),
    ],
)
def test_a_window_that_holds_nothing_is_refused(
    kind: BoundaryKind, lower: str, upper: str
) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        Boundaries(kind, lower, upper)


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2))
def test_texts_of_times_are_in_the_order_of_times(times: list[datetime]) -> None:
    written = [Boundaries.between(time, None).lower or "" for time in times]
    assert sorted(written) == [time.isoformat() for time in sorted(times)]
