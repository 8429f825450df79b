"""What Confluent's Python serializers write converters read, and the other way round."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.contract.converting import (
    converter,
    decode,
    encode,
    frame_of,
    raw_frame,
    schema_of,
    values_of,
)
from tests.registry_server import served

from headrace.dataplane.conversion import PartConverter, encoded
from headrace.dataplane.records import record_frame
from headrace.rest import Serving
from headrace.sdk import RetriableError, Schema
from headrace_plugins.confluent.protoc import compile_proto

pytestmark = pytest.mark.spark

CONTEXT = SerializationContext("t", MessageField.VALUE)
USER = Schema.struct(
    {
        "name": Schema.string(),
        "age": Schema.int32(optional=True),
        "tags": Schema.array(Schema.string()),
        "counts": Schema.map(Schema.string(), Schema.int64()),
    },
    name="User",
)
ANN: dict[str, Any] = {"name": "Ann", "age": 41, "tags": ["a"], "counts": [("x", 1)]}
BOB: dict[str, Any] = {"name": "Bob", "age": None, "tags": [], "counts": []}


@pytest.fixture
def server() -> Iterator[Serving]:
    with served() as serving:
        yield serving


@pytest.fixture
def client(server: Serving) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


@pytest.fixture
def remote(server: Serving) -> Iterator[Callable[..., PartConverter]]:
    """Converters that ask the server, unless their keys say another."""
    made = []

    def make(name: str, **keys: str) -> PartConverter:
        props = {"schema.registry.url": server.url}
        props |= {key.replace("_", "."): value for key, value in keys.items()}
        made.append(converter(name, props))
        return made[-1]

    yield make
    for each in made:
        each.converter.close()


def as_objects(natives: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**native, "counts": dict(native["counts"])} for native in natives]


def test_json_of_either_side_is_read_by_the_other(
    spark, tmp_path: Path, remote, client: SchemaRegistryClient
) -> None:
    frame = encode(spark, remote("JsonSchemaConverter"), USER, [ANN, BOB])
    ours = values_of(frame)
    read = JSONDeserializer(None, schema_registry_client=client)
    assert [read(raw, CONTEXT) for raw in ours] == as_objects([ANN, BOB])

    schema = client.get_latest_version("t-value").schema
    assert schema.schema_str is not None
    write = JSONSerializer(schema.schema_str, client)
    theirs = [write(user, CONTEXT) for user in as_objects([ANN, BOB])]
    closed = {"type": "object", "title": "User", "properties": {"name": {"type": "string"}}}
    client.set_compatibility("t-value", "NONE")
    newer = JSONSerializer(json.dumps(closed), client)({"name": "Eve"}, CONTEXT)
    raws = raw_frame(spark, [*theirs, newer])
    decoded = decode(spark, remote("JsonSchemaConverter"), raws, tmp_path)
    values = values_of(decoded)
    assert values[:2] == [ANN, BOB]
    assert values[2] == {"name": "Eve", "age": None, "tags": None, "counts": None}
    assert values_of(decoded, "error") == [None] * 3
    assert schema_of(decoded).name == "User"


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 id = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  google.protobuf.Timestamp at = 4;
  repeated Item items = 5;
  map<string, double> tags = 6;
  oneof paid { string card = 7; uint32 cash = 8; }
  enum State { NEW = 0; SENT = 1; }
  message Item { string name = 1; int32 count = 2; }
}
"""
SENT: dict[str, Any] = {
    "id": 1,
    "note": None,
    "state": "SENT",
    "at": 1_700_000_000_123_456,
    "items": [{"name": "tea", "count": 2}, {"name": "milk", "count": 0}],
    "tags": [("a", 0.5)],
    "paid_0": {"card": None, "cash": 4_000_000_000},
}


def message_type(text: str, name: str) -> type[Message]:
    """The class of a message of a .proto file."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compile_proto(text, name="order.proto")).file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_of_either_side_is_read_by_the_other(
    spark, tmp_path: Path, remote, client: SchemaRegistryClient
) -> None:
    order: Any = message_type(ORDER, "shop.Order")
    form = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(order, client, form)
    message = order(id=1, state=1, cash=4_000_000_000, tags={"a": 0.5})
    message.items.add(name="tea", count=2)
    message.items.add(name="milk")
    message.at.FromMicroseconds(SENT["at"])
    theirs = serializer(message, CONTEXT)
    assert theirs is not None

    decoded = decode(spark, remote("ProtobufConverter"), raw_frame(spark, [theirs]), tmp_path)
    assert values_of(decoded, "error") == [None]
    [value] = values_of(decoded)
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=SENT["at"])
    assert value == SENT | {"at": at}

    keys = {"enhanced_protobuf_schema_support": "true", "optional_for_nullables": "true"}
    again = decode(
        spark, remote("ProtobufConverter", **keys), raw_frame(spark, [theirs]), tmp_path
    )
    schema = schema_of(again).replaced(optional=False)
    assert schema.name == "shop.Order"
    client.set_compatibility("t-value", "NONE")
    [ours] = values_of(encode(spark, remote("ProtobufConverter", **keys), schema, [SENT]))
    text = client.get_latest_version("t-value").schema.schema_str
    assert text is not None
    for type_ in (order, message_type(text, "shop.Order")):
        read = ProtobufDeserializer(type_, form, client)(ours, CONTEXT)
        assert read is not None
        assert read.SerializeToString() == message.SerializeToString()


def test_protobuf_of_several_versions_gets_one_schema(
    spark, tmp_path: Path, remote, client: SchemaRegistryClient
) -> None:
    form = {"use.deprecated.format": False}
    raws = []
    for text, fields in (
        ("string name = 1;", {"name": "Ann"}),
        ("string name = 1; int32 age = 2;", {"name": "Bob", "age": 5}),
    ):
        user: Any = message_type(f'syntax = "proto3"; message User {{ {text} }}', "User")
        raws.append(ProtobufSerializer(user, client, form)(user(**fields), CONTEXT))
    raws += [raws[0][:5] + b"\x02\x04", raws[0][:5] + b"\x00\x08\x01", b"{}"]
    frame = raw_frame(spark, raws)
    decoded = decode(spark, remote("ProtobufConverter"), frame, tmp_path)
    good = [{"name": "Ann", "age": None}, {"name": "Bob", "age": 5}]
    assert [value for value in values_of(decoded) if value is not None] == good
    messages = [error["message"] for error in values_of(decoded, "error") if error]
    for told, message in zip(
        ("no message [2]", "another type", "magic"), messages, strict=True
    ):
        assert told in message


def test_values_that_no_message_can_hold_are_faults(
    spark, remote, client: SchemaRegistryClient
) -> None:
    client.register_schema("t-value", ConfluentSchema(ORDER, "PROTOBUF"))
    keys = {"auto_register_schemas": "false", "use_latest_version": "true"}
    each = remote("ProtobufConverter", **keys)
    schema = Schema.struct({"id": Schema.int64(), "state": Schema.string()}, name="shop.Order")
    natives = [{"id": 1, "state": "SENT"}, {"id": 2, "state": "LOST"}, None]
    records = encoded(record_frame(frame_of(spark, schema, natives), "t"), [each])
    error = f"({records.shape.error}).message AS message"
    rows = records.frame.selectExpr(f"{records.shape.value.sql()} AS value", error).collect()
    assert bytes(rows[0].value)[5:] == b"\x02\x02\x08\x01\x18\x01"
    assert [row.value is None for row in rows] == [False, True, True]
    assert [row.message is None for row in rows] == [True, False, True]
    assert "LOST" in rows[1].message
    assert "at state" in rows[1].message
    lacking = each.converter.encode("c", "m", Schema.struct({"x": Schema.int32()}))
    assert "does not have the field x" in lacking.faults[0].message


@pytest.mark.parametrize("name", ["JsonSchemaConverter", "ProtobufConverter"])
def test_a_registry_that_is_down_is_no_records_fault(
    spark, tmp_path: Path, remote, name: str
) -> None:
    raws = raw_frame(spark, values_of(encode(spark, remote(name), USER, [ANN])))
    down = {"schema_registry_url": "http://127.0.0.1:9", "max_retries": "0"}
    with pytest.raises(RetriableError):
        decode(spark, remote(name, **down), raws, tmp_path)
    with pytest.raises(RetriableError):
        encode(spark, remote(name, **down), USER, [ANN])


def test_a_schema_that_the_registry_refuses_is_the_records_fault(spark, remote) -> None:
    each = remote("JsonSchemaConverter")
    encode(spark, each, USER, [ANN])
    other = Schema.struct({"name": Schema.int32()}, name="User")
    records = encoded(record_frame(frame_of(spark, other, [{"name": 1}, None]), "t"), [each])
    assert records.shape.error is not None
    faults = records.frame.selectExpr(f"({records.shape.error}).message AS message").collect()
    assert "TYPE_CHANGED" in faults[0].message
    assert faults[1].message is None
