"""Avro beside Confluent's own serializers, with several schemas in a batch and bad records."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.contract.converting import (
    Memory,
    converter,
    decode,
    encode,
    raw_frame,
    schema_of,
    values_of,
)
from tests.integration.dataplane.flow_doubles import Kept, batch, dead_letters, flow, read_topic

from headrace.dataplane import ConvertingReader, FrameReader
from headrace.model import Counts
from headrace.rest import Door, Serving, registry_app
from headrace.schemaregistry import EmbeddedRegistry, RegistryService
from headrace.sdk import FrameSource, Position, ReadLimit, RetriableError, Schema
from headrace.sdk.schemaregistry import SchemaText
from headrace.sdk.wireform import head_of
from headrace.store import MemoryRegistryStore

pytestmark = pytest.mark.spark

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "by", "type": ["null", "long", "string"], "default": None},
        {"name": "parts", "type": {"type": "array", "items": ["null", "State"]}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
FIRST: dict[str, Any] = {
    "id": 1,
    "state": "NEW",
    "code": b"ab",
    "price": Decimal("12.50"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
    "by": "Ann",
    "parts": ["OLD", None],
    "tags": {"a": 0.5},
}
NEWER = {
    **ORDER,
    "fields": [
        {"name": "id", "type": "long"},
        *ORDER["fields"][1:],
        {"name": "town", "type": "string", "default": "?"},
    ],
}


@pytest.fixture(scope="module")
def service() -> RegistryService:
    return RegistryService(MemoryRegistryStore())


@pytest.fixture
def registry(service: RegistryService) -> EmbeddedRegistry:
    return EmbeddedRegistry(service)


@pytest.fixture(scope="module")
def url(service: RegistryService) -> Iterator[str]:
    door = Door(port=0)
    with Serving(registry_app(service, door), door) as serving:
        serving.start()
        yield serving.url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def context(topic: str = "t") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def written(client: SchemaRegistryClient, schema: dict[str, Any], value: Any) -> bytes:
    raw = AvroSerializer(client, json.dumps(schema))(value, context())
    assert raw is not None
    return bytes(raw)


def test_what_confluents_serializer_writes_is_read_and_the_other_way_round(
    spark, tmp_path: Path, client: SchemaRegistryClient, url: str
) -> None:
    keys = {"schema.registry.url": url, "enhanced.avro.schema.support": "true"}
    each = converter("AvroConverter", keys)
    decoded = decode(spark, each, raw_frame(spark, [written(client, ORDER, FIRST)]), tmp_path)
    assert values_of(decoded, "error") == [None]
    [value], schema = values_of(decoded), schema_of(decoded)
    assert value == {
        **FIRST,
        "by": {"long": None, "string": "Ann"},
        "tags": [("a", 0.5)],
    }
    assert [f.name for f in schema.fields if not f.schema.optional] == [
        f["name"] for f in ORDER["fields"] if f["name"] != "by"
    ]

    micros = (FIRST["at"] - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000
    native = {**value, "day": 19782, "at": round(micros)}
    back = encode(spark, each, schema.replaced(optional=False), [native])
    [raw] = values_of(back)
    again = AvroDeserializer(client)(raw, context())
    millis = FIRST["at"].replace(microsecond=123_000)
    assert again == {**FIRST, "at": millis}
    each.converter.close()


def test_records_of_several_schemas_get_one_and_keep_it(
    spark, tmp_path: Path, client: SchemaRegistryClient, registry: EmbeddedRegistry
) -> None:
    old = written(client, ORDER, FIRST)
    new = written(client, NEWER, {**FIRST, "id": 2**40, "town": "Ulm"})
    memory = Memory()
    each = converter("AvroConverter", registry=registry, schemas=memory)
    decoded = decode(spark, each, raw_frame(spark, [old, new, None]), tmp_path)
    found = [value and (value["id"], value["town"]) for value in values_of(decoded)]
    # A field that a writer did not know has its default, as in Avro's own resolution.
    assert found == [(1, "?"), (2**40, "Ulm"), None]
    later = decode(spark, each, raw_frame(spark, [old]), tmp_path)
    assert schema_of(later) == schema_of(decoded)
    assert list(memory) == ["t#value"]


class Raws(FrameSource):
    """Values of bytes."""

    def __init__(self, raws: list[bytes | None]) -> None:
        self.raws = raws

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return Position()

    def read(self, spark, start, end):
        return raw_frame(spark, self.raws)


def test_bad_records_are_dead_lettered_with_their_causes(
    spark, tmp_path: Path, client: SchemaRegistryClient, registry: EmbeddedRegistry
) -> None:
    good = written(client, ORDER, FIRST)
    apart = registry.register("other", SchemaText('{"type": "array", "items": "int"}'))
    endless = registry.register(
        "endless",
        SchemaText(
            '{"type": "record", "name": "L", "fields": '
            '[{"name": "next", "type": ["null", "L"]}]}'
        ),
    )
    bad = {
        good[:-3]: "Failed to deserialize",
        b'{"id": 1}': "Unknown magic byte!",
        b"\x00\x00": "Unknown magic byte!",
        head_of(4_000_000) + good[5:]: "for id 4000000",
        head_of(apart) + b"\x00": "does not fit the other records",
        head_of(endless) + b"\x00": "contains itself",
        # It says that a text of two gigabytes follows.
        good[:5] + b"\x02\x00ab\x02\x01" + b"\x80" * 4 + b"\x0f": "Failed to deserialize",
    }
    each = converter("AvroConverter", registry=registry)
    reader = ConvertingReader(
        FrameReader(Raws([good, *bad, None])), [each], tmp_path / "decoded"
    )
    sink, dead = Kept(), dead_letters(tmp_path, "dead")
    counts = flow(spark, [sink], source=reader, dead_letters=dead).run(batch(1, 0, 9))
    assert counts == Counts(read=9, written=2, rejected=7, causes=counts.causes)
    letters = {
        bytes(row["cause"]["raw"]): row["cause"] for row in read_topic(spark, tmp_path, "dead")
    }
    assert letters.keys() == bad.keys()
    for raw, told in bad.items():
        assert letters[raw]["stage"] == "VALUE_CONVERTER"
        assert told in letters[raw]["message"]


def test_a_registry_that_cannot_be_reached_fails_the_batch_and_no_record(
    spark, tmp_path: Path
) -> None:
    keys = {"schema.registry.url": "http://127.0.0.1:9", "max.retries": "0"}
    each = converter("AvroConverter", keys)
    with pytest.raises(RetriableError):
        decode(spark, each, raw_frame(spark, [head_of(1)]), tmp_path)
    with pytest.raises(RetriableError):
        encode(spark, each, Schema.int32(), [1])
    each.converter.close()


def test_values_that_avro_cannot_hold_are_faults(spark, registry: EmbeddedRegistry) -> None:
    registry.register("t-value", SchemaText(json.dumps(NEWER)))
    keys = {"auto.register.schemas": "false", "use.latest.version": "true"}
    each = converter("AvroConverter", keys, registry=registry)
    schema = Schema.struct(
        {
            "town": Schema.string(),
            "id": Schema.int16(),
            "state": Schema.string(),
            "code": Schema.bytes(),
            "price": Schema.decimal(2, precision=9),
            "day": Schema.date(),
            "at": Schema.timestamp(),
            "parts": Schema.array(Schema.string()),
            "tags": Schema.map(Schema.string(), Schema.float64(optional=True)),
        }
    )
    good = {"town": "Ulm", "id": 1, "state": "NEW", "code": b"ab", "price": Decimal("1.00")}
    good |= {"day": 1, "at": 0, "parts": [], "tags": []}
    bad = [
        {**good, "state": "GONE"},
        {**good, "code": b"abc"},
        {**good, "parts": ["NEW", "GONE"]},
        {**good, "tags": [("a", None)]},
    ]
    frame = encode(spark, each, schema, [good, *bad])
    assert [raw is None for raw in values_of(frame)] == [False] + [True] * 4


def test_a_schema_that_its_subject_refuses_is_the_fault_of_the_records(
    spark, registry: EmbeddedRegistry
) -> None:
    name = {"value.subject.name.strategy": "RecordNameStrategy"}
    each = converter("AvroConverter", name, registry=registry)
    encode(spark, each, Schema.struct({"a": Schema.int32()}, name="x.Y"), [])
    worse = Schema.struct({"a": Schema.string()}, name="x.Y")
    [fault] = each.converter.encode("c", "m", worse).faults
    assert "did not take the schema" in fault.message
    assert registry.versions("x.Y") == [1]
