"""The last row of each key is kept, or nothing is made in Arrow."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk.keyed_rows import DELETED, KeyedRows, NotKeyedError

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.string()), ("n", pa.int64()), (DELETED, pa.bool_())]
)
KEYED = KeyedRows(("a", "b"), lambda records: records)
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("xy"), st.integers(0, 99), st.booleans())
)


def batch(rows: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA
    )


@given(st.lists(ROWS, min_size=1).filter(any))
def test_each_key_has_the_last_of_its_rows(batches) -> None:
    rows = KEYED.last([batch(each) for each in batches])
    expected = {row[:2]: row for each in batches for row in each}
    found = [tuple(row.values()) for row in rows.to_pylist()]
    assert sorted(found) == sorted(expected.values())


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1, None]),
        pa.array([0.0, -0.0]),
        pa.array([[1], [2]]),
    ],
    ids=["null", "float", "list"],
)
def test_keys_that_arrow_does_not_compare_as_spark_does_are_refused(key: pa.Array) -> None:
    rows = pa.RecordBatch.from_arrays([key, pa.array([False, False])], ["k", DELETED])
    with pytest.raises(NotKeyedError):
        KeyedRows(("k",), lambda records: records).last([rows])
