"""Sets of GTIDs hold what was added."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_plugins.connectors.mysql.binlog_dump import GtidSet
from headrace_plugins.databases.database import DatabaseError

ONE, OTHER = "5aa72a7f-44a8-11ea-947f-0242ac190002", "0aa72a7f-44a8-11ea-947f-0242ac190002"


@given(st.lists(st.integers(1, 12), max_size=20))
def test_a_set_of_mysql_holds_what_was_added(numbers: list[int]) -> None:
    found = GtidSet("")
    for number in numbers:
        found.add(f"{ONE}:{number}")
        found.add(f"{OTHER.upper()}:{number + 1}")
    again = GtidSet(str(found))
    assert str(again) == str(found)
    assert again.packed() == found.packed()
    assert str(GtidSet.unpacked(found.packed())) == str(found)
    for number in range(1, 14):
        assert found.covers(GtidSet(f"{ONE}:{number}")) == (number in numbers)
    for part in str(found).split(","):
        ranges = [each.partition("-") for each in part.split(":")[1:]]
        ends = [(int(first), int(last or first)) for first, _, last in ranges]
        # As few as can be, and in order.
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ends))


def test_a_set_of_mariadb_holds_the_last_of_each_domain() -> None:
    found = GtidSet("0-1-5,1-1-7")
    found.add("0-2-9")
    assert str(found) == "0-2-9,1-1-7"
    assert found.covers(GtidSet("0-1-9"))
    assert not found.covers(GtidSet("0-1-10"))
    assert not found.covers(GtidSet("2-1-1"))


def test_a_set_is_packed_with_ends_that_are_open() -> None:
    packed = GtidSet(f"{ONE}:1-5:9").packed()
    assert packed[:8] == (1).to_bytes(8, "little")
    assert packed[8:24].hex() == ONE.replace("-", "")
    numbers = [int.from_bytes(packed[at : at + 8], "little") for at in range(24, 64, 8)]
    assert numbers == [2, 1, 6, 9, 10]


def test_a_set_has_the_numbers_of_each_tag() -> None:
    found = GtidSet(f"{ONE}:1-2:own:1-3:9,{OTHER}:7")
    found.add(f"{ONE}:own:4")
    assert str(found) == f"{OTHER}:7,{ONE}:1-2:own:1-4:9"
    assert found.covers(GtidSet(f"{ONE}:own:4"))
    assert not found.covers(GtidSet(f"{ONE}:3"))
    assert found.packed()[:8] == bytes([1, 3, 0, 0, 0, 0, 0, 1])


def test_a_set_is_written_as_the_server_writes_it() -> None:
    found = GtidSet(f"{ONE}:7,{OTHER}:own:1-2,{OTHER}:1-273,{OTHER}:a:3")
    assert str(found) == f"{OTHER}:1-273:a:3:own:1-2,{ONE}:7"


def test_only_a_server_s_own_gaps_are_filled() -> None:
    found = GtidSet(f"{ONE}:2-3:9:own:1:4,{OTHER}:1:3")
    assert str(found.filled(ONE.upper())) == f"{OTHER}:1:3,{ONE}:2-9:own:1-4"
    assert str(found) == f"{OTHER}:1:3,{ONE}:2-3:9:own:1:4"


def test_a_set_with_tags_is_unpacked() -> None:
    found = GtidSet(f"{ONE}:1-5:tag:1:7-8,{OTHER}:3")
    assert str(GtidSet.unpacked(found.packed())) == str(found)


@pytest.mark.parametrize("tag", ["", ":tag"])
def test_a_set_that_is_damaged_is_refused(tag: str) -> None:
    packed = GtidSet(f"{ONE}{tag}:1-5:7-8,{OTHER}:3").packed()
    for size in range(len(packed)):
        with pytest.raises(DatabaseError, match="damaged GTID set"):
            GtidSet.unpacked(packed[:size])
