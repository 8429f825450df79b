"""Protobuf schemas and those of Kafka Connect, as Confluent's converter has them."""

import pytest
from tests.unit.plugins.confluent.protobuf_files import (
    CHOICE,
    PLAIN,
    WORDS,
    carried,
    file_of,
    read,
)

from headrace.sdk import RecordError, Schema, Type
from headrace_plugins.confluent.protobuf_converter import ProtoOptions
from headrace_plugins.confluent.protobuf_payloads import RecordWriter
from headrace_plugins.confluent.protobuf_schemas import (
    ENUM_FACT,
    TAG,
    TYPE,
    UNION,
    proto_of,
    scrubbed,
)


def field_of(text: str, options: ProtoOptions = PLAIN, *, syntax: str = "proto3") -> Schema:
    """The schema of the field f, without its number."""
    found = read(f"message M {{ {text} }}", options, syntax=syntax).field("f")
    assert found is not None
    assert found.schema.parameters[TAG] == "7"
    rest = {key: value for key, value in found.schema.parameters.items() if key != TAG}
    return found.schema.replaced(parameters=rest)


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("int32 f = 7;", Schema.int32(optional=True)),
        ("sint32 f = 7;", Schema.int32(optional=True, parameters={TYPE: "sint32"})),
        ("uint32 f = 7;", Schema.int64(optional=True, parameters={TYPE: "uint32"})),
        ("fixed64 f = 7;", Schema.int64(optional=True, parameters={TYPE: "fixed64"})),
        ("float f = 7;", Schema.float32(optional=True)),
        ("double f = 7;", Schema.float64(optional=True)),
        ("bool f = 7;", Schema.boolean(optional=True)),
        ("string f = 7;", Schema.string(optional=True)),
        ("bytes f = 7;", Schema.bytes(optional=True)),
        ("google.protobuf.Timestamp f = 7;", Schema.timestamp(optional=True)),
        ("google.type.Date f = 7;", Schema.date(optional=True)),
        ("google.type.TimeOfDay f = 7;", Schema.time(optional=True)),
        ("confluent.type.Decimal f = 7;", Schema.decimal(18, optional=True)),
        (
            "repeated string f = 7;",
            Schema.array(Schema.string(optional=True), optional=True),
        ),
        (
            "enum E { A = 0; B = 5; } E f = 7;",
            Schema.string(
                optional=True,
                name="E",
                parameters={ENUM_FACT: "E", f"{ENUM_FACT}.A": "0", f"{ENUM_FACT}.B": "5"},
            ),
        ),
        (
            "google.protobuf.Int64Value f = 7;",
            Schema.struct(
                {"value": Schema.int64(optional=True, parameters={TAG: "1"})},
                name="Int64Value",
                optional=True,
            ),
        ),
        (
            "map<string, bool> f = 7;",
            Schema.map(
                Schema.string(optional=True, parameters={TAG: "1"}),
                Schema.boolean(optional=True, parameters={TAG: "2"}),
                name="f",
                optional=True,
            ),
        ),
        ("message N {} N f = 7;", Schema.struct({}, name="N", optional=True)),
    ],
)
def test_fields_have_the_types_of_confluents_converter(text: str, schema: Schema) -> None:
    assert field_of(text) == schema


@pytest.mark.parametrize(
    ("kind", "type_"), [("int8", Type.INT8), ("int16", Type.INT16), ("int99", Type.INT32)]
)
def test_small_numbers_are_told_by_an_option(kind: str, type_: Type) -> None:
    option = f'(confluent.field_meta) = {{params: {{key: "connect.type", value: "{kind}"}}}}'
    assert field_of(f"int32 f = 7 [{option}];").type is type_


def test_a_decimals_digits_are_told_by_options() -> None:
    pairs = '{key: "scale", value: "2"}, {key: "precision", value: "9"}'
    option = f"(confluent.field_meta) = {{params: [{pairs}]}}"
    decimal = Schema.decimal(2, precision=9, optional=True)
    assert field_of(f"confluent.type.Decimal f = 7 [{option}];") == decimal


def test_keys_say_which_fields_may_be_null() -> None:
    wrappers = ProtoOptions(wrappers=True)
    assert field_of("int32 f = 7;", WORDS) == Schema.int32()
    assert field_of("optional int32 f = 7;", WORDS) == Schema.int32(optional=True)
    assert field_of("optional int32 f = 7;", WORDS, syntax="proto2").optional
    assert not field_of("required int32 f = 7;", WORDS, syntax="proto2").optional
    assert field_of("int32 f = 7;", wrappers) == Schema.int32()
    assert field_of("google.protobuf.Int32Value f = 7;", wrappers) == Schema.int32(
        optional=True
    )


def test_a_oneof_is_a_struct_of_what_it_may_be() -> None:
    own = read(CHOICE)
    assert [field.name for field in own.fields] == ["pick_0", "a"]
    pick = own.fields[0].schema
    assert (pick.name, pick.optional) == (f"{UNION}.pick", True)
    assert [field.name for field in pick.fields] == ["f", "n"]
    full = read(CHOICE, ProtoOptions(enhanced=True, union_places=False))
    assert full.name == "shop.M"
    assert full.fields[0].name == "pick"
    assert full.fields[0].schema.name == f"{UNION}.shop.M.pick"
    flat = read(CHOICE, ProtoOptions(flat_unions=True))
    assert [field.name for field in flat.fields] == ["f", "n", "a"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("message M { M f = 7; }", "contains itself"),
        ("message M { map<int32, N> f = 7; message N { M m = 1; } }", "contains itself"),
        ("message M { int32 a = 1; int32 A = 2; }", "only in case"),
    ],
)
def test_messages_without_columns_are_refused(body: str, said: str) -> None:
    with pytest.raises(RecordError) as refused:
        read(body)
    assert said in refused.value.problem


ORDER_FILE = """\
syntax = "proto3";
package shop;

import "confluent/meta.proto";
import "confluent/type/decimal.proto";

message Order {
  int32 id = 1 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int8"}]}];
  optional string note = 2;
  confluent.type.Decimal price = 3 [(confluent.field_meta) = {params: \
[{key: "precision", value: "9"}, {key: "scale", value: "2"}]}];
  State state = 4;
  map<string, int64> tags = 5;
  repeated SpotsEntry spots = 6;
  Town town = 7;
  enum State {
    NEW = 0;
  }
  message SpotsEntry {
    double key = 1;
    string value = 2;
  }
  message Town {
    string name = 1;
  }
}
"""


def test_a_file_is_written_as_confluents_converter_writes_it() -> None:
    schema = Schema.struct(
        {
            "id": Schema.int8(),
            "note": Schema.string(optional=True),
            "price": Schema.decimal(2, precision=9),
            "state": Schema.string(
                name="State", parameters={ENUM_FACT: "State", f"{ENUM_FACT}.NEW": "0"}
            ),
            "tags": Schema.map(Schema.string(), Schema.int64()),
            "spots": Schema.map(Schema.float64(), Schema.string()),
            "town": Schema.struct({"name": Schema.string()}, name="geo.Town"),
        },
        name="shop.Order",
    )
    written = proto_of(schema, WORDS)
    assert written.name == "shop.Order"
    assert written.text == ORDER_FILE


def test_numbers_of_fields_stay_what_they_were() -> None:
    body = "message M { string b = 9; oneof pick { int32 f = 7; } uint64 u = 2; }"
    again = proto_of(read(body), PLAIN).text
    for line in ("string b = 9;", "int32 f = 7;", "uint64 u = 2;", "oneof pick {"):
        assert f"{line}\n" in again


@pytest.mark.parametrize(
    "schema",
    [
        Schema.array(Schema.int32()),
        Schema.date(),
        Schema.struct({"a": Schema.array(Schema.array(Schema.int32()))}),
        Schema.struct({"a-b": Schema.int32()}),
        Schema.struct({"a": Schema.int32()}, name="a.1"),
        Schema.struct(
            {
                "a": Schema.struct({"x": Schema.int32()}, name="N"),
                "b": Schema.struct({"y": Schema.int32()}, name="N"),
            }
        ),
    ],
)
def test_what_protobuf_cannot_say_is_refused(schema: Schema) -> None:
    with pytest.raises(RecordError):
        proto_of(schema, PLAIN)


@pytest.mark.parametrize(
    ("name", "known"),
    [("a_1", "a_1"), ("a-b c", "a_b_c"), ("1a", "x1a"), ("_a", "x_a"), ("é", "_C3_A9")],
)
def test_names_are_scrubbed_as_confluents_converter_scrubs_them(name: str, known: str) -> None:
    assert scrubbed(name) == known


def test_scrubbed_fields_are_written() -> None:
    schema = Schema.struct({"a-b": Schema.int32()}, name="x.1y")
    own, [value] = carried(schema, [{"a-b": 5}], ProtoOptions(scrubs=True))
    assert (own.name, value) == ("x1y", {"a_b": 5})


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("int32 g = 1;", Schema.int32(), "does not have the field f"),
        ("int32 f = 1;", Schema.int64(), "INT64 as Protobuf int32 at f"),
        ("int64 f = 1;", Schema.timestamp(), "Timestamp as Protobuf int64"),
        ("repeated int32 f = 1;", Schema.int32(), "at f"),
        ("int32 f = 1;", Schema.array(Schema.int32()), "at f"),
    ],
)
def test_schemas_that_do_not_fit_a_message_are_refused(
    text: str, schema: Schema, said: str
) -> None:
    files = file_of(f"message M {{ {text} }}")
    writer = RecordWriter(files, (0,), Schema.struct({"f": schema}), PLAIN, b"")
    with pytest.raises(RecordError) as refused:
        writer.check()
    assert said in refused.value.problem
