"""What types are inferred from samples, and how schemas grow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.arrow_json import DEEPEST, merged_type
from headrace_plugins.connectors.file.columns import as_headed
from headrace_plugins.connectors.file.formats import Dialect
from headrace_plugins.connectors.file.inference import (
    VARIANT,
    grown,
    header_names,
    infer_csv,
    infer_json,
    to_schema,
)

PLAIN = Dialect()


def columns(schema: Schema) -> dict[str, str]:
    return {f.name: (f.schema.name or f.schema.type.value) for f in schema.fields}


def csv_types(text: str, dialect: Dialect = PLAIN) -> dict[str, str]:
    types = infer_csv(text.encode(), dialect)
    return {types.field(n).name: str(types.field(n).type) for n in range(types.num_fields)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", ""], "int64"),
        (["1", "2.5"], "double"),
        (["1e3", "2"], "double"),
        (["true", "FALSE"], "bool"),
        (["2024-01-31"], "date32[day]"),
        (["2024-01-31 10:00:00"], "timestamp[s]"),
        (["1", "x"], "string"),
        (["007", "8"], "string"),
        (["+5"], "string"),
        (["1.5", "nan"], "string"),
        (["9223372036854775807", "9223372036854775808"], "decimal128(38, 0)"),
        (["9223372036854775807", "1"], "decimal128(19, 0)"),
        (["9007199254740993", "0.5"], "string"),
        (["1" * 39], "string"),
        (["", ""], "null"),
    ],
)
def test_the_type_of_a_csv_column(values: list[str], expected: str) -> None:
    text = "a,b\n" + "".join(f"{value},z\n" for value in values)
    assert csv_types(text)["a"] == expected


def test_ragged_lines_of_a_sample_are_passed_over() -> None:
    assert csv_types("a,b\n1,2\nonly\n3,4,5\n") == {"a": "int64", "b": "int64"}


def test_a_column_name_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match="called 'a'"):
        csv_types("a,b,a\n1,2,3\n")


def test_dates_in_another_format_are_told_from_times() -> None:
    dialect = Dialect(date_format="dd/MM/yyyy", timestamp_format="dd/MM/yyyy HH:mm")
    found = csv_types("on,at\n31/01/2024,31/01/2024 10:00\n", dialect)
    assert found["on"] == "date32[day]"
    assert found["at"].startswith("timestamp")


def test_an_unknown_column_is_a_text_in_the_end() -> None:
    assert columns(to_schema(infer_csv(b"a,b\n1,\n", PLAIN))) == {"a": "INT64", "b": "STRING"}


def test_json_lines_that_disagree_are_reconciled() -> None:
    lines = (
        b'{"a": 1, "s": {"x": 1}, "l": [1]}\noops\n{"a": "t", "s": {"y": null}, "l": [2.5]}\n'
    )
    schema = to_schema(infer_json(lines, PLAIN))
    assert columns(schema) == {"a": "STRING", "s": "STRUCT", "l": "ARRAY"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["9223372036854775807"], "INT64"),
        (["1", "9223372036854775808"], "org.apache.kafka.connect.data.Decimal"),
        (["1", "2.5"], "FLOAT64"),
        (["9007199254740993", "0.5"], "STRING"),
        (["1" * 39], "STRING"),
        (["{}"], "STRING"),
        (["{}", '{"x": 1}'], "STRUCT"),
        (["null"], "STRING"),
        (["[]"], "ARRAY"),
    ],
)
def test_what_is_inferred_of_json_loses_nothing(values: list[str], expected: str) -> None:
    lines = "".join(f'{{"a": {value}}}\n' for value in values).encode()
    assert columns(to_schema(infer_json(lines, PLAIN))) == {"a": expected}


def test_an_object_without_fields_stays_one_where_conflicts_are_variants() -> None:
    found = infer_json(b'{"a": {}, "l": [{}]}\n', PLAIN, VARIANT)
    assert to_schema(found, VARIANT) == parse_ddl("a VARIANT, l ARRAY<VARIANT>", field="s")


@pytest.mark.parametrize("text", ["null\n", 'null\n{"a": 1}\n', "5\n", "\n\n"])
def test_lines_that_are_no_objects_are_passed_over(text: str) -> None:
    found = infer_json(text.encode(), PLAIN)
    assert [field.name for field in found] == (["a"] if "a" in text else [])


def test_a_text_of_json_that_looks_like_a_time_stays_a_text() -> None:
    assert columns(to_schema(infer_json(b'{"at": "2024-01-01 00:00:00"}\n', PLAIN))) == {
        "at": "STRING"
    }


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from("xyz"), JSON_VALUES, max_size=3), min_size=1, max_size=5
    )
)
def test_any_json_objects_have_a_schema_that_does_not_depend_on_their_order(
    rows: list[dict[str, Any]],
) -> None:
    def inferred(some: list[dict[str, Any]]) -> dict[str, str]:
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in some)
        return columns(to_schema(infer_json(lines, PLAIN)))

    assert inferred(rows) == inferred(rows[::-1])


def test_merging_types_takes_the_wider() -> None:
    assert merged_type(pa.int64(), pa.float64()) == pa.float64()
    assert merged_type(pa.null(), pa.bool_()) == pa.bool_()
    assert merged_type(pa.bool_(), pa.int64()) == pa.string()


def test_a_schema_grows_by_new_columns_and_keeps_what_has_nothing_in_common() -> None:
    known = Schema.struct(
        {"a": Schema.int64(optional=True), "b": Schema.boolean(optional=True)}
    )
    new = Schema.struct({"b": Schema.string(), "a": Schema.float64(), "c": Schema.date()})
    assert columns(grown(known, new)) == {
        "a": "FLOAT64",
        "b": "BOOLEAN",
        "c": "org.apache.kafka.connect.data.Date",
    }


def test_names_in_a_header_may_be_quoted_or_missing() -> None:
    assert header_names(b'a,"b,""c""",\r\n', PLAIN) == ["a", 'b,"c"', "_c2"]


def test_a_header_is_matched_by_name_and_strangers_are_texts() -> None:
    schema = Schema.struct({"a": Schema.int64(), "b": Schema.date()})
    found = as_headed(["b", "x"], schema, renames=False, path="p")
    assert columns(found) == {"b": "org.apache.kafka.connect.data.Date", "x": "STRING"}


def test_columns_in_another_order_are_never_renamed_by_their_order() -> None:
    schema = Schema.struct({"a": Schema.int64(), "b": Schema.int64(), "c": Schema.int64()})
    with pytest.raises(SourceError, match="header of p is b, a, x"):
        as_headed(["b", "a", "x"], schema, renames=True, path="p")


def levels_of(arrow: pa.DataType) -> int:
    inner = [levels_of(arrow.field(number).type) for number in range(arrow.num_fields)]
    return 1 + max(inner, default=0) if inner else 0


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_what_is_nested_deeply_has_no_type_of_its_own(
    opening: bytes, closing: bytes, multiline: bool
) -> None:
    dialect = Dialect(multiline=multiline)
    row = b'{"v":' + opening * 200 + b"1" + closing * 200 + b"}\n"
    assert levels_of(infer_json(row, dialect, VARIANT)) == DEEPEST


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_what_is_nested_too_deeply_for_any_parser_teaches_nothing(
    opening: bytes, closing: bytes
) -> None:
    deep = b'{"v":' + opening * 100_000 + b"1" + closing * 100_000 + b"}\n"
    assert infer_json(b'{"id":1}\n' + deep, Dialect()) == pa.struct([("id", pa.int64())])
    assert infer_json(deep, Dialect(multiline=True)) == pa.struct([])


def test_a_document_on_several_lines_is_no_line() -> None:
    document = b'{\n  "id": 1,\n  "items": [\n    {"a": 1}\n  ]\n}\n'
    assert infer_json(document, Dialect()) == pa.struct([("a", pa.int64())])


def test_hexadecimal_numbers_are_texts() -> None:
    found = infer_csv(b"hash\n0x1F\n0xdeadbeef\n", Dialect())
    assert found.field("hash").type == pa.string()


def test_a_text_that_is_cut_off_is_looked_at_once() -> None:
    payload = json.dumps(json.dumps([{"k": "v"}] * 100_000))
    assert infer_json(f'{{"payload":{payload}'.encode()[:1_000_000], Dialect()) == pa.struct([])
