"""Which newer Protobuf schemas read what older ones wrote: Confluent's documented rules."""

import pytest

from headrace_registry.languages.protobuf import parse_proto

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
    assert parse_proto(other, {}).text == other
