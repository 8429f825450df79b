"""Confluent's own Python client and serializers work against the embedded registry."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    ConfigCompatibilityLevel,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.registry_server import served

from headrace.rest import Serving
from headrace_plugins.confluent.protoc import compile_proto

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "test",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
}
ANN = {"name": "Ann", "age": 41}


def avro(*more: dict[str, str]) -> str:
    return json.dumps({**USER, "fields": [*USER["fields"], *more]})


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with served() as serving:
        yield serving


@pytest.fixture
def client(server: Serving) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def id_in(payload: bytes) -> int:
    assert payload[0] == 0
    return int.from_bytes(payload[1:5], "big")


def refusal(call) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code


def test_avro_goes_round(client: SchemaRegistryClient, topic: str) -> None:
    payload = AvroSerializer(client, avro())(ANN, context(topic))
    assert payload is not None
    assert client.get_latest_version(f"{topic}-value").schema_id == id_in(payload)
    assert AvroDeserializer(client)(payload, context(topic)) == ANN


def test_avro_evolves_and_old_records_are_still_read(
    client: SchemaRegistryClient, topic: str
) -> None:
    old = AvroSerializer(client, avro())(ANN, context(topic))
    newer = avro({"name": "town", "type": "string", "default": "?"})
    new = AvroSerializer(client, newer)({**ANN, "town": "Ulm"}, context(topic))
    assert old is not None
    assert new is not None
    assert id_in(old) != id_in(new)
    read = AvroDeserializer(client, newer)
    assert read(old, context(topic)) == {**ANN, "town": "?"}
    assert read(new, context(topic)) == {**ANN, "town": "Ulm"}
    assert client.get_versions(f"{topic}-value") == [1, 2]


def test_an_incompatible_schema_is_refused_with_409(
    client: SchemaRegistryClient, topic: str
) -> None:
    AvroSerializer(client, avro())(ANN, context(topic))
    worse = avro({"name": "town", "type": "string"})
    with pytest.raises(SchemaRegistryError, match="reader_field_missing") as caught:
        AvroSerializer(client, worse)({**ANN, "town": "Ulm"}, context(topic))
    assert caught.value.http_status_code == 409
    subject, schema = f"{topic}-value", Schema(worse, "AVRO")
    assert client.test_compatibility(subject, schema) is False
    assert client.test_compatibility_all_versions(subject, schema) is False
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.test_compatibility(subject, schema) is True


def test_json_schema_goes_round_and_evolves(client: SchemaRegistryClient, topic: str) -> None:
    base = {"type": "object", "title": "User", "additionalProperties": False}
    old = json.dumps({**base, "properties": {"name": {"type": "string"}}})
    properties = {"name": {"type": "string"}, "age": {"type": "integer"}}
    new = json.dumps({**base, "properties": properties})
    first = JSONSerializer(old, client)({"name": "Ann"}, context(topic))
    second = JSONSerializer(new, client)(ANN, context(topic))
    assert first is not None
    assert second is not None
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(first, context(topic)) == {"name": "Ann"}
    assert read(second, context(topic)) == ANN
    narrow = json.dumps({**base, "properties": {"name": {"type": "integer"}}})
    with pytest.raises(SchemaRegistryError, match="TYPE_CHANGED"):
        JSONSerializer(narrow, client)({"name": 1}, context(topic))


def protobuf_class(text: str, imports: dict[str, str], name: str):
    files = FileDescriptorSet.FromString(compile_proto(text, imports, name="user.proto"))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_goes_round_with_its_imports(client: SchemaRegistryClient, topic: str) -> None:
    head = 'syntax = "proto3"; package test; '
    town = f"{head} message Town {{ string name = 1; }}"
    text = (
        f'{head} import "google/protobuf/timestamp.proto"; import "town.proto"; '
        "message Other { int32 x = 1; } message User { string name = 1; Town town = 4; "
        "google.protobuf.Timestamp at = 2; map<string, int32> counts = 3; }"
    )
    user = protobuf_class(text, {"town.proto": town}, "test.User")
    conf = {"use.deprecated.format": False}
    sent = user(name="Ann", counts={"a": 1}, town={"name": "Ulm"})
    payload = ProtobufSerializer(user, client, conf)(sent, context(topic))
    assert payload is not None
    back = ProtobufDeserializer(user, conf, client)(payload, context(topic))
    assert back == sent
    shown = client.get_latest_version(f"{topic}-value").schema
    assert shown.schema_type == "PROTOBUF"
    assert [(each.name, each.version) for each in shown.references or ()] == [("town.proto", 1)]
    assert "town.proto" in client.get_subjects()
    changed = text.replace("string name = 1", "int32 name = 1")
    with pytest.raises(SchemaRegistryError, match="FIELD_SCALAR_KIND_CHANGED"):
        client.register_schema(f"{topic}-value", Schema(changed, "PROTOBUF", shown.references))


def test_what_is_unknown_has_confluents_codes(client: SchemaRegistryClient) -> None:
    assert refusal(lambda: client.get_latest_version("none")) == (404, 40401)
    assert refusal(lambda: client.get_versions("none")) == (404, 40401)
    assert refusal(lambda: client.delete_subject("none")) == (404, 40401)
    assert refusal(lambda: client.get_schema(99999)) == (404, 40403)
    assert refusal(lambda: client.lookup_schema("none", Schema("{}"))) == (404, 40401)
    assert refusal(lambda: client.register_schema("bad", Schema("{"))) == (422, 42201)
    assert refusal(lambda: client.register_schema("bad", Schema("{}", "XML"))) == (422, 42201)
    assert refusal(lambda: client.set_compatibility("bad", "BEST")) == (422, 42203)
    assert refusal(lambda: client.get_config("none")) == (404, 40408)


def test_references_are_kept_and_guard_what_they_name(
    client: SchemaRegistryClient, topic: str
) -> None:
    client.register_schema(f"{topic}-user", Schema(avro(), "AVRO"))
    text = '{"type":"record","name":"Order","fields":[{"name":"by","type":"test.User"}]}'
    uses = [SchemaReference("test.User", f"{topic}-user", 1)]
    order = Schema(text, "AVRO", uses)
    payload = AvroSerializer(client, order)({"by": ANN}, context(topic))
    assert payload is not None
    assert AvroDeserializer(client)(payload, context(topic)) == {"by": ANN}
    assert client.get_referenced_by(f"{topic}-user", 1) == [id_in(payload)]
    assert refusal(lambda: client.delete_subject(f"{topic}-user")) == (422, 42206)


def test_deletes_hide_and_then_remove(client: SchemaRegistryClient, topic: str) -> None:
    made = client.register_schema(topic, Schema('"long"'))
    assert refusal(lambda: client.delete_subject(topic, permanent=True)) == (404, 40405)
    assert client.delete_subject(topic) == [1]
    assert topic not in client.get_subjects()
    assert topic in client.get_subjects(deleted=True)
    assert client.get_schema(made).schema_str == '"long"'
    assert client.get_subjects_by_schema_id(made, deleted=True) == [topic]
    assert client.delete_version(topic, 1, permanent=True) == 1
    client.clear_caches()
    assert refusal(lambda: client.get_schema(made)) == (404, 40403)


def test_a_proto_file_is_shown_as_it_came_and_as_a_descriptor(
    client: SchemaRegistryClient, topic: str
) -> None:
    text = 'syntax = "proto3"; // a town\nmessage Town { string name = 1; }'
    made = client.register_schema(topic, Schema(text, "PROTOBUF"))
    assert client.get_latest_version(topic).schema.schema_str == text
    client.clear_caches()
    serialized = client.get_schema(made, fmt="serialized").schema_str
    assert serialized is not None
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [message.name for message in file.message_type] == ["Town"]
    # A client that registers the descriptor gets the same schema.
    assert client.register_schema(topic, Schema(serialized, "PROTOBUF")) == made


def test_the_mode_is_read_and_write(client: SchemaRegistryClient, topic: str) -> None:
    assert (client.get_mode(topic), client.get_global_mode()) == ("READWRITE", "READWRITE")


def test_configs_work(client: SchemaRegistryClient, topic: str) -> None:
    client.set_config(topic, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config(topic).compatibility_level == "FULL"
    assert client.delete_config(topic).compatibility_level == "FULL"
    assert client.get_config().compatibility_level == "BACKWARD"


def test_metadata_and_rules_stay_with_the_schema(server: Serving, topic: str) -> None:
    import httpx2

    url = f"{server.url}/subjects/{topic}/versions"
    body = {
        "schema": '"double"',
        "metadata": {"properties": {"owner": "us"}},
        "ruleSet": {"domainRules": []},
    }
    made = httpx2.post(url, json=body, timeout=60)
    assert made.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    shown = httpx2.get(f"{url}/latest", timeout=60).json()
    assert (shown["metadata"], shown["ruleSet"]) == (body["metadata"], body["ruleSet"])
    assert httpx2.get(f"{url}/latest/schema", timeout=60).text == '"double"'


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("PUT", "/subjects", None, 405),
        ("POST", "/subjects/s/versions", b"{", 400),
        ("POST", "/subjects/s/versions", b"[]", 422),
        ("GET", "/subjects/s/versions/0", None, 422),
        ("GET", "/schemas/ids/x", None, 422),
        ("GET", "/schemas/ids/99999999999999999999", None, 404),
        ("POST", "/subjects/s/versions", b'{"schema": "\\"\\ud800\\""}', 422),
        ("POST", "/subjects/s/versions", b'{"schema": "{}", "id": 99999999999999}', 422),
        ("POST", "/subjects/s/versions", b'{"schema": "\\"int\\"", "id": 7}', 422),
        ("POST", "/subjects/s/versions", b'{"schema": "\\"int\\"", "version": 3}', 422),
        ("PUT", "/mode", b'{"mode": "IMPORT"}', 405),
        ("POST", "/subjects/%00/versions", b'{"schema": "\\"int\\""}', 422),
        ("GET", "/subjects?offset=-1", None, 422),
    ],
)
def test_what_it_does_not_understand_it_refuses_as_confluent_does(
    server: Serving, method: str, path: str, body: bytes | None, status: int
) -> None:
    import httpx2

    headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
    answer = httpx2.request(
        method, server.url + path, content=body, headers=headers, timeout=60
    )
    assert answer.status_code == status
    assert set(answer.json()) == {"error_code", "message"}
