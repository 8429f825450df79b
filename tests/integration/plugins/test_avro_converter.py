"""Avro beside Confluent's own serializers, with several schemas in a batch and bad records."""

import json
from collections.abc import Iterator
from contextlib import closing
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
from tests.registry_server import served

from headrace.dataplane import ConvertingReader, FrameReader
from headrace.model import Counts
from headrace.sdk import FrameSource, Position, ReadLimit, RetriableError, Schema
from headrace_plugins.confluent.remote_schemas import head_of
from headrace_plugins.confluent.schema_registry import SchemaText
from headrace_registry.embedded import EmbeddedRegistry, service_in
from headrace_registry.service import RegistryService

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


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RegistryService]:
    with closing(service_in(tmp_path / "registry.db")) as made:
        yield made


@pytest.fixture
def registry(service: RegistryService) -> EmbeddedRegistry:
    return EmbeddedRegistry(service)


@pytest.fixture
def url(service: RegistryService) -> Iterator[str]:
    with served(service) as serving:
        yield serving.url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def context(topic: str = "t") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def written(client: SchemaRegistryClient, schema: Any, value: Any, topic: str = "t") -> bytes:
    raw = AvroSerializer(client, json.dumps(schema))(value, context(topic))
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

    millis = FIRST["at"].replace(microsecond=123_000)
    micros = (millis - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000
    native = {**value, "day": 19782, "at": round(micros)}
    back = encode(spark, each, schema.replaced(optional=False), [native])
    [raw] = values_of(back)
    again = AvroDeserializer(client)(raw, context())
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


def test_numbers_beyond_their_small_types_are_bad_and_nulls_good(
    spark, tmp_path: Path, client: SchemaRegistryClient, registry: EmbeddedRegistry
) -> None:
    byte, short = (
        {"type": "int", "connect.type": "int8"},
        {"type": "int", "connect.type": "int16"},
    )
    fields = {
        "a": ["null", byte],
        "list": {"type": "array", "items": ["null", short]},
        "map": {"type": "map", "values": byte},
        "one": ["null", byte, "string"],
    }
    schema = {
        "type": "record",
        "name": "Small",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
    }
    good = {"a": -128, "list": [32767, None], "map": {"k": 127}, "one": "x"}
    nulls: dict[str, Any] = {"a": None, "list": [], "map": {}, "one": None}
    bad = {
        "a": {**good, "a": 128},
        "list item": {**good, "list": [0, 32768]},
        "map item": {**good, "map": {"k": -129}},
        "one": {**good, "one": 1000},
    }
    values = (good, nulls, *bad.values())
    raws = [written(client, ["null", schema], value, "small") for value in values]
    raws += [raws[0][:5] + b"\x00", raws[0][:-1]]
    each = converter("AvroConverter", registry=registry)
    decoded = decode(spark, each, raw_frame(spark, raws), tmp_path)
    small = {"a": -128, "list": [32767, None], "map": [("k", 127)]}
    empty = {**nulls, "map": []}
    rows = [{**small, "one": {"int": None, "string": "x"}}, empty, *[None] * len(bad)]
    assert values_of(decoded) == [*rows, None, None]
    told = [error and error["message"] for error in values_of(decoded, "error")]
    beyond = [f"The number at {place} is out of the range" for place in bad]
    assert [text is None for text in told] == [True, True, *[False] * len(bad), True, False]
    assert all(part in text for part, text in zip(beyond, told[2:], strict=False))


@pytest.mark.parametrize(
    "told",
    [
        ("string", "a text"),
        ({"type": "array", "items": ["null", "long"]}, [None, 2**40]),
        (["long", "string"], "a text"),
        (["string"], "a text"),
        (["null", "string"], "a text"),
    ],
    ids=["text", "list", "union", "union of one", "optional text"],
)
def test_what_is_no_record_is_read_or_bad(
    spark,
    tmp_path: Path,
    client: SchemaRegistryClient,
    registry: EmbeddedRegistry,
    told: tuple[Any, Any],
) -> None:
    type_, good = told
    raw = written(client, type_, good, json.dumps(type_))
    each = converter("AvroConverter", registry=registry)
    decoded = decode(spark, each, raw_frame(spark, [raw, raw[:-1], None]), tmp_path)
    read = {"long": None, "string": good} if type_ == ["long", "string"] else good
    assert values_of(decoded) == [read, None, None]
    assert [error is None for error in values_of(decoded, "error")] == [True, False, True]


def test_records_of_nothing_but_nulls_are_no_bad_ones(
    spark, tmp_path: Path, client: SchemaRegistryClient, registry: EmbeddedRegistry
) -> None:
    types = {"a": ["null", "string"], "b": ["null", "long"]}
    schema = {"type": "record", "name": "Nulls"}
    all_ = []
    for names in (["a", "b"], ["a"]):
        fields = [{"name": name, "type": types[name], "default": None} for name in names]
        values = [{"a": None, "b": None}, {"a": "x", "b": None}]
        each_schema = {**schema, "fields": fields}
        all_ += [written(client, each_schema, value, "nulls") for value in values]
    all_.append(all_[0][:6])
    each = converter("AvroConverter", registry=registry)
    decoded = decode(spark, each, raw_frame(spark, all_), tmp_path)
    both = [{"a": None, "b": None}, {"a": "x", "b": None}]
    assert values_of(decoded) == [*both, *both, None]
    assert [error is None for error in values_of(decoded, "error")] == [True] * 4 + [False]


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
    assert "did not accept the schema" in fault.message
    assert registry.versions("x.Y") == [1]
