"""What Confluent's Python serializers write converters read, and the other way round."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.contract.converting import (
    converter,
    decode,
    encode,
    frame_of,
    raw_frame,
    schema_of,
    values_of,
)

from headrace.dataplane.conversion import PartConverter, encoded
from headrace.dataplane.records import record_frame
from headrace.rest import Door, Serving, registry_app
from headrace.schemaregistry import RegistryService
from headrace.sdk import RetriableError, Schema
from headrace.store import MemoryRegistryStore

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
    door = Door(port=0)
    app = registry_app(RegistryService(MemoryRegistryStore()), door)
    with Serving(app, door) as serving:
        serving.start()
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


@pytest.mark.parametrize("name", ["JsonSchemaConverter"])
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
