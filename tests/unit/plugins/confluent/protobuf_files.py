"""What the tests of Protobuf share: files, and values that are written and read."""

from typing import Any

import pyarrow as pa

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.converter import Decoded
from headrace_plugins.confluent.protobuf_converter import ProtoOptions
from headrace_plugins.confluent.protobuf_payloads import PayloadReader, RecordWriter
from headrace_plugins.confluent.protobuf_schemas import connect_of, proto_of
from headrace_plugins.confluent.protobuf_types import ProtoFile
from headrace_plugins.confluent.protoc import compile_proto

CHOICE = """message M {
  int32 a = 1;
  oneof pick { int32 f = 7; N n = 3; }
  message N { string s = 1; }
}"""


PLAIN, WORDS = ProtoOptions(), ProtoOptions(words=True)
IMPORTS = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/type/decimal.proto";
import "confluent/meta.proto";
"""


def file_of(body: str, *, syntax: str = "proto3", package: str = "shop") -> bytes:
    return compile_proto(f'syntax = "{syntax}"; package {package}; {IMPORTS} {body}')


def read(body: str, options: ProtoOptions = PLAIN, *, syntax: str = "proto3") -> Schema:
    file = ProtoFile(file_of(body, syntax=syntax))
    return connect_of(file.type_of(file.at([0])), options)


def decoded(files: bytes, *bodies: bytes, options: ProtoOptions = PLAIN) -> Decoded:
    return PayloadReader(files, options)(pa.array(bodies, pa.binary()))


def written(
    schema: Schema, natives: list[Any], options: ProtoOptions, files: bytes | None = None
) -> list[dict[str, Any]]:
    """What a writer makes of values, with its own schema or with another."""
    proto = proto_of(schema, options)
    files = files or compile_proto(proto.text)
    path = tuple(ProtoFile(files).path_of(proto.name))
    writer = RecordWriter(files, path, schema, options, b"")
    found: list[dict[str, Any]] = writer(pa.array(natives, to_arrow_type(schema))).to_pylist()
    return found


def carried(
    schema: Schema, natives: list[Any], options: ProtoOptions
) -> tuple[Schema, list[Any]]:
    """What comes back of values, which are all to be carried, and with which schema."""
    made = written(schema, natives, options)
    assert [each["problem"] for each in made] == [None] * len(natives)
    files = compile_proto(proto_of(schema, options).text)
    found = decoded(files, *(each["bytes"] for each in made), options=options)
    assert not found.faults
    [group] = found.groups
    assert group.values.type == to_arrow_type(group.schema)
    return group.schema, group.values.to_pylist()
