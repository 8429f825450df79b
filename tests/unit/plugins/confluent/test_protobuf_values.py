"""Values that become Protobuf and come back, and those that cannot."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plugins.confluent.protobuf_files import (
    CHOICE,
    PLAIN,
    WORDS,
    carried,
    decoded,
    file_of,
    read,
    written,
)

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.confluent.protobuf_converter import ProtoOptions
from headrace_plugins.confluent.protobuf_payloads import (
    RecordWriter,
    index_bytes,
    split_indexes,
)
from headrace_plugins.confluent.protobuf_schemas import proto_of
from headrace_plugins.confluent.protoc import compile_proto

SCALARS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (Schema.int8(), st.integers(-128, 127)),
    (Schema.int16(), st.integers(-(2**15), 2**15 - 1)),
    (Schema.int32(), st.integers(-(2**31), 2**31 - 1)),
    (Schema.int64(), st.integers(-(2**63), 2**63 - 1)),
    (Schema.float32(), st.floats(width=32, allow_nan=False)),
    (Schema.float64(), st.floats(allow_nan=False)),
    (Schema.boolean(), st.booleans()),
    (Schema.string(), st.text(max_size=5)),
    (Schema.bytes(), st.binary(max_size=5)),
    (Schema.decimal(3, precision=12), st.decimals(-(10**8), 10**8, places=3)),
    (Schema.date(), st.dates()),
    (Schema.time(), st.integers(0, 86_400_000_000 - 1)),
    (Schema.timestamp(), st.integers(-62_135_596_800 * 10**6, 253_402_300_799 * 10**6)),
]


@st.composite
def fields(draw: st.DrawFn, depth: int = 0) -> tuple[Schema, st.SearchStrategy[Any]]:
    """A schema, and its values."""
    kind = draw(st.sampled_from(["scalar", "null", "list", "map", "struct"][: 5 - depth]))
    if depth > 1 or kind in {"scalar", "null"}:
        schema, values = draw(st.sampled_from(SCALARS))
        if kind == "null":
            return schema.replaced(optional=True), st.none() | values
        return schema, values
    if kind == "struct":
        return draw(structs(depth + 1))
    schema, values = draw(st.sampled_from(SCALARS) | structs(depth + 1))
    if kind == "list":
        return Schema.array(schema), st.lists(values, max_size=3)
    keys = draw(st.sampled_from([SCALARS[2], SCALARS[3], SCALARS[6], SCALARS[7], SCALARS[5]]))
    pairs = st.dictionaries(keys[1], values, max_size=3)
    return Schema.map(keys[0], schema), pairs.map(lambda found: list(found.items()))


@st.composite
def structs(draw: st.DrawFn, depth: int = 0) -> tuple[Schema, st.SearchStrategy[Any]]:
    members = draw(st.lists(fields(depth), min_size=1, max_size=3))
    named = {f"f{place}": member for place, member in enumerate(members)}
    schema = Schema.struct({name: member[0] for name, member in named.items()})
    return schema, st.fixed_dictionaries({name: member[1] for name, member in named.items()})


def ordered(value: Any) -> Any:
    """A value whose maps are sorted: in Protobuf they have no order."""
    if isinstance(value, dict):
        return {name: ordered(member) for name, member in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(((key, ordered(item)) for key, item in value), key=repr)
    return [ordered(item) for item in value] if isinstance(value, list) else value


def widened(schema: Schema) -> Schema:
    """A schema whose small numbers are as wide as the wrappers that may hold them."""
    if schema.fields:
        members = {field.name: widened(field.schema) for field in schema.fields}
        return Schema.struct(
            members,
            name=schema.name,
            optional=schema.optional,
            parameters=schema.parameters,
        )
    changes: dict[str, Any] = {
        name: widened(part)
        for name in ("key_schema", "value_schema")
        if (part := getattr(schema, name)) is not None
    }
    if schema.type in {Type.INT8, Type.INT16}:
        changes["type"] = Type.INT32
    return schema.replaced(**changes)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_values_come_back_as_they_were(data: st.DataObject) -> None:
    schema, values = data.draw(structs())
    natives = data.draw(st.lists(values, min_size=1, max_size=3))
    options = data.draw(st.sampled_from([WORDS, ProtoOptions(wrappers=True)]))
    known = pa.array(natives, to_arrow_type(schema)).to_pylist()
    own, found = carried(schema, natives, options)
    assert ordered(found) == ordered(known)
    # What was read is written by the same file, so nothing evolves by being copied.
    again = carried(own, natives, options)[0]
    if options.wrappers:
        assert widened(again) == widened(own)
    else:
        assert again == own


def test_single_values_are_wrapped() -> None:
    for schema, natives in (
        (Schema.string(), ["", "é"]),
        (Schema.int64(), [0, -5]),
        (Schema.int8(), [-128]),
    ):
        own, found = carried(schema, natives, PLAIN)
        assert found == natives
        assert own.type is (Type.INT32 if schema.type is Type.INT8 else schema.type)
    kept = ProtoOptions(raw_wrappers=False)
    files = compile_proto(proto_of(Schema.string(), PLAIN).text)
    [made] = written(Schema.string(), ["x"], PLAIN)
    [group] = decoded(files, made["bytes"], options=kept).groups
    assert group.values.to_pylist() == [{"value": "x"}]


def test_without_words_or_wrappers_null_is_read_as_the_default() -> None:
    schema = Schema.struct({"a": Schema.int32(optional=True), "b": Schema.date(optional=True)})
    _, found = carried(schema, [{"a": None, "b": None}], PLAIN)
    assert found == [{"a": 0, "b": None}]


BAD = """message M {
  google.type.Date day = 1;
  google.protobuf.Timestamp at = 2;
  google.type.TimeOfDay clock = 3;
  confluent.type.Decimal price = 4
    [(confluent.field_meta) = {params: [{key: "scale", value: "1"}]}];
  int32 small = 5 [(confluent.field_meta) = {params: {key: "connect.type", value: "int8"}}];
  string text = 6;
  repeated google.type.Date days = 7;
}"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("0a07 08e80f 1002 181e", "day is out of range"),  # 30 February 2024
        ("0a00", "at day"),
        ("1206 08ffffffffffff7f", "Error parsing"),
        ("1208 08ffffffffffff7f", "years 1 to 9999"),
        ("1a02 0818", "invalid time of day"),
        ("2205 0a017b 1802", "more than 1 digits after the point"),  # 1.23
        ("2205 1880808001", "too many digits"),
        ("28 8001", "128 is out of the range of INT8, at small"),
        ("3202 fffe", "Error parsing"),
        ("3a00", "at days"),
        ("2a03 616263", "another type than in its schema"),
        ("0a05 08", "Error parsing"),
    ],
)
def test_messages_that_stand_for_no_value_are_faults(body: str, said: str) -> None:
    good = bytes.fromhex("00 28 7f")
    found = decoded(file_of(BAD), good, b"\x00" + bytes.fromhex(body), good)
    [(row, (exception, message))] = found.faults.items()
    assert (row, exception) == (1, DATA_EXCEPTION)
    assert said in message
    [group] = found.groups
    values = dict(zip(group.rows or (), group.values.to_pylist(), strict=True))
    assert [values[row]["small"] for row in (0, 2)] == [127, 127]


def test_decimals_are_read_exactly_at_the_scale_of_their_field() -> None:
    files = file_of(BAD)
    raws = [
        bytes.fromhex("00 2205 0a0178 1802"),  # 1.20
        bytes.fromhex("00 2203 0a01ff"),  # -1
        bytes.fromhex("00 2202 1801"),  # Go writes no bytes for zero
        bytes.fromhex("00 220e 0a0105 18ffffffffffffffffff01"),  # 5 at scale -1
    ]
    [group] = decoded(files, *raws).groups
    found = [value["price"] for value in group.values.to_pylist()]
    assert found == [Decimal("1.2"), Decimal("-1.0"), Decimal("0.0"), Decimal("50.0")]


def test_unsigned_numbers_keep_their_value_or_their_bits() -> None:
    files = file_of("message M { uint32 a = 1; fixed32 b = 2; uint64 c = 3; }")
    raw = bytes.fromhex("00 08ffffffff0f 15ffffffff 18ffffffffffffffffff01")
    [group] = decoded(files, raw).groups
    value = {"a": 2**32 - 1, "b": 2**32 - 1, "c": -1}
    assert group.values.to_pylist() == [value]
    [again] = written(group.schema, [value], PLAIN, files)
    assert again["bytes"] == raw


def test_enums_are_names_and_unknown_numbers_are_said_to_be() -> None:
    files = file_of("enum E { A = 0; B = 5; } message M { E e = 1; }")
    [group] = decoded(files, b"\x00", b"\x00\x08\x05", b"\x00\x08\x09").groups
    found = [value["e"] for value in group.values.to_pylist()]
    assert found == ["A", "B", "UNKNOWN_ENUM_VALUE_E_9"]
    numbers = ProtoOptions(enum_numbers=True)
    [group] = decoded(files, b"\x00", b"\x00\x08\x05", options=numbers).groups
    assert [value["e"] for value in group.values.to_pylist()] == [0, 5]
    made = written(group.schema, [{"e": 5}], numbers, files)
    assert made == [{"bytes": b"\x00\x08\x05", "problem": None}]


def test_the_last_entry_of_a_key_counts() -> None:
    files = file_of(
        "message M { map<int32, int32> a = 1; repeated BEntry b = 2;"
        " message BEntry { double key = 1; int32 value = 2; } }"
    )
    twice = bytes.fromhex("00 0a0408011001 0a0408011002 12021001 12021002")
    [group] = decoded(files, twice).groups
    assert group.values.to_pylist() == [{"a": [(1, 2)], "b": [(0.0, 2)]}]


def test_protobuf_2_has_defaults_where_they_are_asked_for() -> None:
    files = file_of(
        "message M { optional int32 a = 1 [default = 7]; optional N n = 2;"
        " message N { optional int32 b = 1; } }",
        syntax="proto2",
    )
    [group] = decoded(files, b"\x00").groups
    assert group.values.to_pylist() == [{"a": None, "n": None}]
    [group] = decoded(files, b"\x00", options=ProtoOptions(proto2_words=False)).groups
    assert group.values.to_pylist() == [{"a": 7, "n": None}]
    [group] = decoded(files, b"\x00", options=ProtoOptions(structs_for_nulls=True)).groups
    assert group.values.to_pylist() == [{"a": 7, "n": {"b": 0}}]


def test_texts_of_protobuf_2_that_are_none_are_faults_of_their_records() -> None:
    files = file_of("message M { optional string a = 1; }", syntax="proto2")
    found = decoded(files, b"\x00\x0a\x01a", b"\x00\x0a\x01\xff")
    assert set(found.faults) == {1}
    assert found.groups[0].values[0].as_py() == {"a": "a"}


def test_one_field_of_a_oneof_is_written() -> None:
    files = file_of(CHOICE)
    schema = read(CHOICE)
    given = [
        {"pick_0": {"f": 0, "n": None}, "a": 1},
        {"pick_0": {"f": None, "n": {"s": "x"}}, "a": 2},
        {"pick_0": None, "a": 3},
        {"pick_0": {"f": 1, "n": {"s": "x"}}, "a": 4},
        {"pick_0": {"f": None, "n": None}, "a": 5},
    ]
    made = written(schema, given, PLAIN, files)
    assert [each["problem"] is None for each in made] == [True] * 3 + [False] * 2
    [group] = decoded(files, *(each["bytes"] for each in made[:3])).groups
    assert group.values.to_pylist() == given[:3]
    flat = ProtoOptions(flat_unions=True)
    own = read(CHOICE, flat)
    both = written(own, [{"f": 1, "n": {"s": ""}, "a": 1}], flat, files)
    assert "oneof" in both[0]["problem"]


@pytest.mark.parametrize(
    ("text", "schema", "bad", "said"),
    [
        ("uint32 f = 7;", Schema.int64(), -1, "at f"),
        ("enum E { A = 0; } E f = 7;", Schema.string(), "Z", "at f"),
        ("repeated int32 f = 7;", Schema.array(Schema.int32(optional=True)), [None], "null"),
        (
            "map<int32, int32> f = 7;",
            Schema.map(Schema.int32(), Schema.int32(optional=True)),
            [(1, None)],
            "null",
        ),
        ("google.type.TimeOfDay f = 7;", Schema.time(), -1, "time of day"),
    ],
)
def test_values_that_a_message_cannot_hold_are_faults(
    text: str, schema: Schema, bad: Any, said: str
) -> None:
    files = file_of(f"message ConnectDefault1 {{ {text} }}")
    made = written(
        Schema.struct({"f": schema.replaced(optional=True)}),
        [{"f": bad}, {"f": None}],
        PLAIN,
        files,
    )
    assert said in made[0]["problem"]
    assert made[0]["bytes"] is None
    assert made[1]["problem"] is None


def test_required_fields_have_to_be_given() -> None:
    files = file_of("message M { required int32 f = 1; }", syntax="proto2")
    own = Schema.struct({"f": Schema.int32(optional=True)})
    writer = RecordWriter(files, (0,), own, PLAIN, b"")
    made = writer(pa.array([{"f": None}, {"f": 1}], to_arrow_type(own))).to_pylist()
    assert [each["problem"] is None for each in made] == [False, True]
    with pytest.raises(RecordError):
        RecordWriter(files, (0,), Schema.struct({}), PLAIN, b"").check()


@pytest.mark.parametrize(
    ("path", "raw"),
    [([0], "00"), ([1], "0202"), ([0, 0], "040000"), ([2, 1], "040402"), ([100], "02c801")],
)
def test_the_indexes_of_a_message_are_those_of_confluents_wire_form(
    path: list[int], raw: str
) -> None:
    assert index_bytes(path).hex() == raw
    assert split_indexes(bytes.fromhex(raw) + b"rest") == (tuple(path), len(raw) // 2)


def test_the_first_message_may_be_named_at_length() -> None:
    assert split_indexes(b"\x02\x00x") == ((0,), 2)


@pytest.mark.parametrize("raw", ["", "02", "01", "0203", "80", "ffffffffffffff01"])
def test_bytes_that_name_no_message_are_faults(raw: str) -> None:
    found = decoded(file_of("message M { int32 a = 1; }"), bytes.fromhex(raw))
    assert "no valid message index" in found.faults[0][1]


def test_each_message_of_a_file_is_read_as_itself() -> None:
    files = file_of(
        "message A { map<string, string> m = 1; message In { int32 x = 1; } }"
        "message B { string y = 1; }"
    )
    raws = [
        b"\x00",
        b"\x02\x02\x0a\x01b",
        b"\x04\x00\x00\x08\x05",
        b"\x02\x04",
        b"\x04\x00\x02",
    ]
    found = decoded(files, *raws)
    names = {group.schema.name: group.values.to_pylist() for group in found.groups}
    assert names == {"A": [{"m": []}], "B": [{"y": "b"}], "In": [{"x": 5}]}
    assert {row: "it has no message" in why for row, (_, why) in found.faults.items()} == {
        3: True,
        4: True,
    }


def test_texts_that_are_no_utf8_are_faults_of_their_records() -> None:
    raws = pa.array([b"\xff", b"ok", None], pa.binary())
    texts = pa.StringArray.from_buffers(
        3, raws.buffers()[1], raws.buffers()[2], raws.buffers()[0]
    )
    schema = Schema.struct({"a": Schema.string(optional=True)})
    record = pa.StructArray.from_arrays([texts], fields=list(to_arrow_type(schema)))
    files = compile_proto(proto_of(schema, WORDS).text)
    made = RecordWriter(files, (0,), schema, WORDS, b"")(record).to_pylist()
    assert "at a" in made[0]["problem"]
    assert [each["bytes"] for each in made] == [None, b"\x00\x0a\x02ok", b"\x00"]


def test_a_schema_that_makes_no_columns_is_the_fault_of_its_records() -> None:
    option = '(confluent.field_meta) = {params: {key: "scale", value: "99"}}'
    files = file_of(f"message M {{ confluent.type.Decimal f = 7 [{option}]; }}")
    assert set(decoded(files, b"\x00", b"\x00").faults) == {0, 1}
    twice = file_of("message M { int32 pick_0 = 1; oneof pick { int32 f = 7; } }")
    assert "pick_0" in decoded(twice, b"\x00").faults[0][1]
