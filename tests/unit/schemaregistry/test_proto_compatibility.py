"""Which newer Protobuf schemas read what older ones wrote: Confluent's documented rules."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from headrace.schemaregistry.proto_schemas import parse_proto
from headrace.schemaregistry.proto_text import proto_text
from headrace.sdk.schemaregistry import compile_proto

HEAD = 'syntax = "proto3"; package test; '


def of(*fields: str, more: str = "") -> str:
    return f"{HEAD} message M {{ {' '.join(fields)} }} {more}"


PART = "message Part { string s = 1; }"
OTHER = "message Part { int32 s = 1; }"


@pytest.mark.parametrize(
    ("original", "update", "finding"),
    [
        (of("int32 a = 1;"), of("int32 a = 1;", "string b = 2;"), ""),
        (of("int32 a = 1;", "string b = 2;"), of("int32 a = 1;"), ""),
        (of("int32 a = 1;"), of("int32 renamed = 1;"), ""),
        (of("int32 a = 1;"), of("int64 a = 1;"), ""),
        (of("int32 a = 1;"), of("bool a = 1;"), ""),
        (of("string a = 1;"), of("bytes a = 1;"), ""),
        (of("fixed32 a = 1;"), of("sfixed32 a = 1;"), ""),
        (of("int32 a = 1;"), of("string a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
        (of("int32 a = 1;"), of("sint32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
        (of("float a = 1;"), of("double a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
        (of("optional int32 a = 1;"), of("repeated int32 a = 1;"), "FIELD_NUMERIC_LABEL"),
        (of("optional string a = 1;"), of("repeated string a = 1;"), ""),
        (of("int32 a = 1;"), of("Part a = 1;", more=PART), "FIELD_KIND_CHANGED"),
        (of("Part a = 1;", more=PART), of("Part a = 1;", more=OTHER), "NAMED_TYPE_CHANGED"),
        (of("map<string, int32> a = 1;"), of("map<string, int64> a = 1;"), ""),
        (
            of("map<string, int32> a = 1;"),
            of("map<string, string> a = 1;"),
            "FIELD_SCALAR_KIND_CHANGED",
        ),
        (of("map<string, int32> a = 1;"), of("int32 a = 1;"), "FIELD_KIND_CHANGED"),
        (of(more=PART), of(), "MESSAGE_REMOVED"),
        (of(), of(more=PART), ""),
        (of(), of().replace("package test", "package other"), "PACKAGE_CHANGED"),
        (of("M a = 1;"), of("M a = 1;", "int32 b = 2;"), ""),
        (of("int32 a = 1;"), of("oneof o { int32 a = 1; string b = 2; }"), ""),
        (
            of("int32 a = 1;", "string b = 2;"),
            of("oneof o { int32 a = 1; string b = 2; }"),
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        ),
        (
            of("int32 a = 1;", "oneof o { string b = 2; }"),
            of("oneof o { string b = 2; int32 a = 1; }"),
            "FIELD_MOVED_TO_EXISTING_ONEOF",
        ),
        (
            of("oneof o { int32 a = 1; string b = 2; }"),
            of("oneof o { int32 a = 1; }"),
            "ONEOF_FIELD_REMOVED",
        ),
        (of("oneof o { int32 a = 1; string b = 2; }"), of(), ""),
        (of("E a = 1;", more="enum E { A = 0; }"), of("int32 a = 1;"), ""),
        (
            of("E a = 1;", more="enum E { A = 0; B = 1; }"),
            of("E a = 1;", more="enum E { A = 0; }"),
            "",
        ),
        (
            'syntax = "proto2"; message M { optional int32 a = 1; }',
            'syntax = "proto2"; message M { optional int32 a = 1; required int32 b = 2; }',
            "REQUIRED_FIELD_ADDED",
        ),
        (
            'syntax = "proto2"; message M { required int32 a = 1; }',
            'syntax = "proto2"; message M { }',
            "REQUIRED_FIELD_REMOVED",
        ),
    ],
)
def test_differences(original: str, update: str, finding: str) -> None:
    found = parse_proto(update, {}).unreadable(parse_proto(original, {}))
    assert bool(found) is bool(finding), found
    assert not finding or any(finding in each for each in found), found


def test_comments_and_layout_make_no_other_schema() -> None:
    one, other = of("int32 a = 1;"), "// why\n" + of("\n  int32   a=1; ")
    assert parse_proto(one, {}).identity == parse_proto(other, {}).identity
    assert parse_proto(other, {}).shown("") == other


EVERYTHING = [
    """
    syntax = "proto3"; package a.b; import public "google/protobuf/any.proto";
    option java_package = "x.y"; option optimize_for = SPEED;
    enum E { option allow_alias = true; A = 0; B = 0; C = -1 [deprecated = true]; reserved 7; }
    message M {
      reserved 5, 8 to 10; reserved "gone";
      optional int32 a = 1; repeated string b = 2 [json_name = "bee", deprecated = true];
      map<string, Inner> c = 3; oneof o { google.protobuf.Any d = 4; bytes e = 6; }
      message Inner { E e = 1; repeated int32 packed = 2 [packed = false]; }
    }
    service S { rpc Call(stream M) returns (M.Inner); }
    """,
    """
    syntax = "proto2";
    message M {
      required string a = 1 [default = "q\\"t"]; optional bytes b = 2 [default = "\\001x"];
      optional double c = 3 [default = 1.5]; optional bool d = 5 [default = true];
      optional group G = 4 { optional int32 x = 1; } extensions 100 to max;
    }
    extend M { optional int32 more = 100; }
    """,
]


@pytest.mark.parametrize("text", EVERYTHING)
def test_a_descriptor_becomes_text_that_compiles_to_it(text: str) -> None:
    first = FileDescriptorSet.FromString(compile_proto(text)).file[-1]
    again = FileDescriptorSet.FromString(compile_proto(proto_text(first))).file[-1]
    assert again == first
