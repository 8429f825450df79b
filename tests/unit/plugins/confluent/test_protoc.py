"""Protobuf schemas are compiled by protoc, whatever form they come in."""

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from headrace_plugins.confluent.protoc import compile_proto
from headrace_plugins.confluent.schema_registry import InvalidSchemaError

HEAD = 'syntax = "proto3"; package x; '


def compiled(text: str, imports: dict[str, str] | None = None) -> list[FileDescriptorProto]:
    return list(FileDescriptorSet.FromString(compile_proto(text, imports)).file)


def as_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_imports_come_first_and_well_known_ones_need_not_be_given() -> None:
    text = (
        f'{HEAD} import "google/protobuf/timestamp.proto"; import "a/b.proto"; '
        'import "confluent/type/decimal.proto"; message M { google.protobuf.Timestamp t = 1; '
        "B b = 2; confluent.type.Decimal d = 3; }"
    )
    files = compiled(text, {"a/b.proto": f"{HEAD} message B {{ int32 i = 1; }}"})
    assert files[-1].name == "schema.proto"
    assert {file.name for file in files[:-1]} == {
        "google/protobuf/timestamp.proto",
        "a/b.proto",
        "confluent/type/decimal.proto",
    }
    assert [field.name for field in files[-1].message_type[0].field] == ["t", "b", "d"]


def test_text_and_base64_mean_the_same() -> None:
    imported = f"{HEAD} message B {{ int32 i = 1; }}"
    text = f'{HEAD} import "b.proto"; message M {{ B b = 1; }}'
    from_text = compiled(text, {"b.proto": imported})
    binary = as_base64(compiled(imported)[0])
    assert compiled(as_base64(from_text[-1]), {"b.proto": binary}) == from_text
    assert compiled(text, {"b.proto": binary}) == from_text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('syntax = "proto3"; message M { foo a = 1; }', '"foo" is not defined'),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax = "proto3"; import "none.proto"; message M {}', "none.proto"),
        ("message", "schema.proto"),
    ],
)
def test_what_protoc_refuses_is_refused_with_its_words(text: str, said: str) -> None:
    with pytest.raises(InvalidSchemaError, match=said):
        compile_proto(text)


@pytest.mark.parametrize("path", ["../../x.proto", "/x.proto", "", "a\0b", "a/b.proto/c.proto"])
def test_an_import_cannot_leave_its_folder(path: str) -> None:
    imports = {"a/b.proto": 'syntax = "proto3";', path: 'syntax = "proto3";'}
    with pytest.raises(InvalidSchemaError, match="not a valid import path"):
        compile_proto('syntax = "proto3";', imports)
