"""The JSON texts of variants are checked wherever they stand, also in slices of arrays."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.struct_exprs import check_variants

ANY = Schema.variant(optional=True)
SCHEMA = Schema.struct(
    {
        "m": Schema.map(Schema.string(), ANY, optional=True),
        "l": Schema.array(ANY, optional=True),
        "v": ANY,
    },
    optional=True,
)
ROWS: list[dict[str, Any] | None] = [
    {"m": [("a", "1"), ("b", None)], "l": ["[1]"], "v": "5"},
    None,
    {"m": [("a", "{")], "l": None, "v": None},
    {"m": None, "l": ["1", "x"], "v": None},
    {"m": None, "l": None, "v": '{"a":1,"a":2}'},
    {"m": [("a", "2")], "l": [], "v": '"x"'},
]


@pytest.mark.parametrize(
    ("row", "place"), [(0, None), (1, None), (2, "m"), (3, "l"), (4, "v"), (5, None)]
)
def test_a_text_that_is_no_json_is_found_where_it_stands(row: int, place: str | None) -> None:
    values = pa.array(ROWS, to_arrow_type(SCHEMA)).slice(row, 1)
    if place is None:
        check_variants(values, SCHEMA)
        return
    with pytest.raises(RecordError, match="Invalid JSON for a Variant") as caught:
        check_variants(values, SCHEMA)
    assert caught.value.field == place
