"""JSON as Arrow arrays: the envelope, inference, and what is no JSON."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sdk.strategies import SCHEMAS, values

from headrace.sdk import Schema
from headrace.sdk.arrow import conform, to_arrow, to_arrow_type
from headrace.sdk.connectjson import connect_json, json_from_native, native_from_value
from headrace.sdk.converter import Decoded
from headrace_plugins.converters.json_decoding import (
    EnvelopeDecoder,
    PlainJsonDecoder,
    SchemaJsonDecoder,
)
from headrace_plugins.converters.json_parsing import members, merged


def raw(*texts: object) -> pa.Array:
    given = [
        text if isinstance(text, bytes | None) else json.dumps(text).encode() for text in texts
    ]
    return pa.array(given, pa.binary())


def rows_of(decoded: Decoded, count: int) -> list[Any]:
    """Values by row; a fault is its message."""
    rows: list[Any] = [None] * count
    for group in decoded.groups:
        assert group.values.type == to_arrow_type(group.schema)
        group.values.validate(full=True)
        numbers = range(count) if group.rows is None else group.rows
        for number, value in zip(numbers, group.values.to_pylist(), strict=True):
            rows[number] = value
    for row, (_, message) in decoded.faults.items():
        rows[row] = message
    return rows


@st.composite
def _typed(draw: st.DrawFn) -> tuple[Schema, list[Any]]:
    schema = draw(SCHEMAS)
    found = draw(st.lists(values(schema.replaced(optional=False)), min_size=1, max_size=4))
    return schema, [native_from_value(schema, value) for value in found]


@given(_typed())
@settings(max_examples=200)
def test_what_the_json_form_says_is_read_with_its_schema(typed: tuple[Schema, Any]) -> None:
    """Many payloads at once are read as one by one, which a parser of its own does."""
    schema, natives = typed
    payloads = [json_from_native(schema, native) for native in natives]
    texts = raw(*payloads)
    together = SchemaJsonDecoder(schema, defaults=False).decode(texts)
    alone = [
        SchemaJsonDecoder(schema, defaults=False).decode(texts[n : n + 1])
        for n in range(len(texts))
    ]
    expected = [rows_of(one, 1)[0] for one in alone]
    assert str(rows_of(together, len(texts))) == str(expected)
    # Arrow's maps have no null among their keys.
    assert all("key field cannot contain null" in text for _, text in together.faults.values())

    tree = {"schema": connect_json(schema)}
    enveloped = raw(*({**tree, "payload": payload} for payload in payloads))
    assert str(rows_of(EnvelopeDecoder(defaults=False).decode(enveloped), len(texts))) == str(
        expected
    )


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4),
    lambda items: (
        st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=3), items, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(min_size=1, max_size=3), TREES, max_size=3), max_size=6)
)
@settings(max_examples=200)
def test_any_json_is_inferred_and_fits_the_schema_of_its_stream(trees: list[Any]) -> None:
    decoder = PlainJsonDecoder()
    known: Schema | None = None
    groups = []
    for start in range(0, len(trees), 2):
        decoded = decoder.decode(raw(*trees[start : start + 2]))
        for group in decoded.groups:
            known = group.schema if known is None else merged(known, group.schema)
            groups.append(group)
        assert all("object" in text for _, text in decoded.faults.values())
    if known is None:
        return
    arrow = to_arrow(Schema.struct({"v": known}))
    for group in groups:
        fitted = decoder.fitted(group.values, arrow.field("v").type)
        conform(pa.RecordBatch.from_arrays([fitted], ["v"]), arrow).validate(full=True)


def test_a_variant_is_a_text_that_holds_json() -> None:
    tree = {"schema": connect_json(Schema.variant())}
    given = ('{"a":[1,"x"]}', "5", "{", "NaN", '{"a":1,"a":2}', 5)
    texts = raw(*({**tree, "payload": payload} for payload in given))
    rows = rows_of(EnvelopeDecoder(defaults=True).decode(texts), len(given))
    assert rows[:2] == ['{"a":[1,"x"]}', "5"]
    assert all("Invalid JSON for a Variant" in row for row in rows[2:5])
    assert "Invalid JSON for schema of type STRING" in rows[5]


def test_texts_that_look_like_times_stay_texts() -> None:
    decoded = PlainJsonDecoder().decode(raw({"t": "2024-01-01", "l": ["2024-01-01 10:00:00"]}))
    assert rows_of(decoded, 1) == [{"t": "2024-01-01", "l": ["2024-01-01 10:00:00"]}]


def test_a_type_that_changes_is_widened_and_what_shares_none_is_text() -> None:
    decoded = PlainJsonDecoder().decode(raw({"a": 1, "b": 1}, {"a": 1.5, "b": {"c": [1]}}))
    assert rows_of(decoded, 2) == [{"a": 1.0, "b": "1"}, {"a": 1.5, "b": '{"c":[1]}'}]


def test_fields_of_null_are_left_out_until_their_type_is_known() -> None:
    decoder = PlainJsonDecoder()
    first = decoder.decode(raw({"a": 1, "b": None, "l": []})).groups[0].schema
    second = decoder.decode(raw({"b": [], "l": [1]})).groups[0].schema
    assert [field.name for field in first.fields] == ["a", "l"]
    both = merged(first, second)
    assert to_arrow_type(both) == pa.struct(
        [
            pa.field("a", pa.int64()),
            pa.field("l", to_arrow_type(Schema.array(Schema.int64(optional=True)))),
            pa.field("b", to_arrow_type(Schema.array(Schema.string(optional=True)))),
        ]
    ) or [field.name for field in both.fields] == ["a", "l", "b"]


def test_one_bad_text_among_many_is_the_only_fault() -> None:
    texts = raw(*({"schema": {"type": "int32"}, "payload": n} for n in range(3000)))
    raws = [text.as_py() for text in texts]
    raws[1234] = raws[1234][:-1] + b"x}"
    decoded = EnvelopeDecoder(defaults=True).decode(pa.array(raws, pa.binary()))
    assert list(decoded.faults) == [1234]
    rows = rows_of(decoded, 3000)
    assert rows[1233] == 1233
    assert rows[1235] == 1235


def test_records_of_several_envelopes_are_read_with_their_own_schemas() -> None:
    one = {"schema": {"type": "int32", "optional": False}, "payload": 5}
    other = {"schema": {"type": "string", "optional": True}, "payload": "x"}
    turned = b'{"payload": 7 , "schema": {"type": "int32", "optional": false}}'
    decoded = EnvelopeDecoder(defaults=True).decode(raw(one, other, one, turned, None))
    assert rows_of(decoded, 5) == [5, "x", 5, 7, None]
    assert len(decoded.groups) == 2


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        ({"type": "string", "optional": True, "default": "d"}, None, "d"),
        (
            {"type": "int32", "optional": False},
            None,
            "Invalid null value for required INT32 field",
        ),
        ({"type": "nope"}, 1, "Unknown schema type: nope"),
        (None, {"a": 1}, {"a": 1}),
        ({"type": "int8"}, 300, "Invalid JSON for schema of type INT8: 300"),
        ({"type": "bytes"}, "aGk=", b"hi"),
        ({"type": "bytes"}, "!", "Invalid JSON for schema of type BYTES: !"),
    ],
)
def test_kafka_connects_cases(schema: object, payload: object, expected: object) -> None:
    texts = raw({"schema": schema, "payload": payload})
    assert rows_of(EnvelopeDecoder(defaults=True).decode(texts), 1) == [expected]


def test_an_envelope_is_told_from_what_has_more_members_than_it() -> None:
    head = b'{"schema":{"type":"int32","optional":false},"payload":'
    texts = raw(head + b'1,"more":2}', head + b"7}", head + b'1,"payload":8}', head + b"9,}")
    rows = rows_of(EnvelopeDecoder(defaults=True).decode(texts), 4)
    assert rows[0].startswith('JsonConverter with schemas.enable requires "schema" and "pay')
    assert rows[1:3] == [7, 8]  # of members of one name the last counts, as in Kafka Connect
    assert rows[3].startswith("Converting byte[] to Kafka Connect data failed")


COUNTS = {
    "type": "map",
    "keys": {"type": "int32"},
    "values": {"type": "int8", "optional": True, "default": 7},
}
BEYOND_A_DAY = (
    "Time values must use number of milliseconds greater than 0 and less than 86400000"
)
REQUIRED = {"type": "struct", "fields": [{"type": "int8", "default": 7, "field": "a"}]}


@pytest.mark.parametrize(
    ("schema", "payload", "filled", "kept"),
    [
        (COUNTS, [[1, None], [2, 3]], [(1, 7), (2, 3)], [(1, None), (2, 3)]),
        (REQUIRED, {}, {"a": 7}, "Invalid null value for required INT8 field in field a"),
        (COUNTS, {}, *["Invalid JSON for schema of type MAP: {}"] * 2),
        (
            {"type": "int32", "name": "org.apache.kafka.connect.data.Time", "version": 1},
            86_400_001,
            *[BEYOND_A_DAY] * 2,
        ),
    ],
)
def test_nulls_become_defaults_at_any_depth_or_where_that_is_off_at_none(
    schema: object, payload: object, filled: object, kept: object
) -> None:
    texts = raw({"schema": schema, "payload": payload})
    assert rows_of(EnvelopeDecoder(defaults=True).decode(texts), 1) == [filled]
    assert rows_of(EnvelopeDecoder(defaults=False).decode(texts), 1) == [kept]


@pytest.mark.parametrize("text", [b"NaN", b"-Infinity", b'{"a":NaN}', b'"\\ud83d"'])
def test_what_only_some_parsers_take_is_no_json(text: bytes) -> None:
    for decoder in (PlainJsonDecoder(), SchemaJsonDecoder(Schema.float64(), defaults=False)):
        (found,) = rows_of(decoder.decode(raw(text)), 1)
        assert found.startswith("Converting byte[] to Kafka Connect data failed")


@pytest.mark.parametrize(
    "texts",
    [
        [b'{"a":1}{"a":2}', b" "],
        [b'{"a":1}\n{"a":2}', b""],
        [b'{"a":', b'1}{"a":2}'],
        [b'{"a":"', b'"}{"a":2}'],
        [b'{"a":[{"a":1}', b'{"a":2}]}'],
    ],
)
def test_no_text_ends_or_goes_on_with_another(texts: list[bytes]) -> None:
    fields = Schema.struct({"a": Schema.int64(optional=True)})
    for decoder in (PlainJsonDecoder(), SchemaJsonDecoder(fields, defaults=False)):
        decoder.decode(raw(b'{"a":0}'))  # what comes next is parsed with its type
        rows = rows_of(decoder.decode(raw(*texts)), len(texts))
        assert all(isinstance(row, str) for row in rows)


def test_a_decimal_is_exact_in_either_form() -> None:
    schema = Schema.decimal(4, precision=38)
    for decimals_as_text in (True, False):
        decoder = SchemaJsonDecoder(schema, True, decimals_as_text)
        numbers = decoder.decode(raw(b"1234567890123456789012345678901234.5678", b"1"))
        assert rows_of(decoder.decode(raw("AQ==")), 1) == [Decimal("0.0001")]
        assert rows_of(numbers, 2) == [
            Decimal("1234567890123456789012345678901234.5678"),
            Decimal("1.0000"),
        ]


@given(st.dictionaries(st.text(max_size=3), TREES, max_size=4), st.integers(0, 3) | st.none())
def test_the_texts_of_an_objects_values_are_taken_as_they_are(tree: Any, indent: Any) -> None:
    found = members(json.dumps(tree, indent=indent))
    assert {name: json.loads(text) for name, text in found.items()} == tree
