"""The schemas of records in a registry: their subjects, ids, and the bytes that name them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.sdk import ConfigError, ConverterContext, RetriableError
from headrace.sdk.converter import RecordPart
from headrace_plugins.confluent.remote_schemas import (
    UNWANTED,
    RemoteSchemas,
    RemoteSettings,
    head_of,
    heads,
    id_of,
    payloads,
    refusing,
)
from headrace_plugins.confluent.schema_registry import SchemaReference, SchemaText, SchemaType
from headrace_registry.embedded import EmbeddedRegistry, service_in

NUMBER, TEXT = SchemaText('"int"'), SchemaText('"string"')


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[EmbeddedRegistry]:
    with closing(EmbeddedRegistry(service_in(tmp_path / "registry.db"))) as made:
        yield made


def remote(
    registry: EmbeddedRegistry | None, part: str = "value", **keys: str
) -> RemoteSchemas:
    config = RemoteSettings.parsed({name.replace("_", "."): v for name, v in keys.items()})
    context = ConverterContext(part=RecordPart(part), topic="orders", registry=registry)
    return RemoteSchemas(config, context, SchemaType.AVRO)


@pytest.mark.parametrize(
    ("part", "strategy", "name", "subject"),
    [
        ("key", "TopicNameStrategy", None, "orders-key"),
        ("value", "TopicNameStrategy", "a.B", "orders-value"),
        ("value", "RecordNameStrategy", "a.B", "a.B"),
        (
            "value",
            "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
            "a.B",
            "orders-a.B",
        ),
    ],
)
def test_subjects_are_named_as_the_strategy_of_the_part_says(
    registry, part: str, strategy: str, name: str | None, subject: str
) -> None:
    made = remote(registry, part, **{f"{part}_subject_name_strategy": strategy})
    assert made.subject(name) == subject


def test_a_strategy_that_needs_a_name_refuses_a_schema_without_one(registry) -> None:
    with pytest.raises(ConfigError) as refused:
        remote(registry, value_subject_name_strategy="RecordNameStrategy").subject(None)
    assert refused.value.field == "value.converter.value.subject.name.strategy"


def test_a_new_schema_is_registered_under_its_subject(registry) -> None:
    writer = remote(registry).writer(NUMBER)
    assert registry.by_id(writer.id) == writer.schema == NUMBER
    assert registry.latest("orders-value").id == writer.id


def test_without_registering_a_schema_must_be_there(registry) -> None:
    quiet = remote(registry, auto_register_schemas="false")
    with pytest.raises(UNWANTED):
        quiet.writer(NUMBER)
    known = registry.register("orders-value", NUMBER)
    assert quiet.writer(NUMBER).id == known
    with pytest.raises(UNWANTED):
        quiet.writer(TEXT)
    assert registry.versions("orders-value") == [1]


def test_the_newest_version_or_a_given_id_stands_for_the_schema(registry) -> None:
    known = registry.register("orders-value", NUMBER)
    newest = remote(registry, auto_register_schemas="false", use_latest_version="true")
    assert newest.writer(TEXT).schema == NUMBER
    by_id = remote(registry, auto_register_schemas="false", use_schema_id=str(known))
    assert by_id.writer(TEXT).schema == NUMBER


def test_a_schema_that_does_not_fit_its_subject_is_the_fault_of_its_records(registry) -> None:
    remote(registry).writer(NUMBER)
    with pytest.raises(UNWANTED) as unwanted:
        remote(registry).writer(TEXT)
    converted = refusing("v", unwanted.value)
    assert converted.faults[0].condition == "v IS NOT NULL"
    assert "registry did not accept the schema" in converted.faults[0].message


def test_heads_of_unknown_ids_and_of_other_languages_are_told_apart(registry) -> None:
    inner = SchemaText('{"type":"record","name":"In","fields":[]}')
    registry.register("inner", inner)
    outer = SchemaText(
        '{"type": "record", "name": "Out", "fields": [{"name": "i", "type": "In"}]}',
        references=(SchemaReference("In", "inner", 1),),
    )
    good = registry.register("orders-value", outer)
    other = registry.register("json", SchemaText('{"type": "object"}', SchemaType.JSON))
    found = remote(registry).known([head_of(good), head_of(other), head_of(99)])
    assert dict(found.found[head_of(good)].references) == {"In": inner.text}
    assert "of type JSON, not AVRO" in found.unknown[head_of(other)]
    assert "for id 99" in found.unknown[head_of(99)]


def test_a_registry_that_cannot_be_reached_is_no_records_fault() -> None:
    far = remote(None, schema_registry_url="http://127.0.0.1:9", max_retries="0")
    for call in (lambda: far.writer(NUMBER), lambda: far.known([head_of(1)])):
        with pytest.raises(RetriableError):
            call()
    far.close()


def test_without_a_registry_a_url_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="No embedded schema registry"):
        remote(None).writer(NUMBER)


def test_bytes_are_taken_apart_into_heads_and_payloads() -> None:
    raws = [head_of(258) + b"abc", None, b"", b"\x00\x00", b"{}xyz", head_of(1)]
    raw = pa.array(raws, pa.binary())
    found, bad = heads(raw)
    assert found.to_pylist() == [b"\x00\x00\x00\x01\x02", None, None, None, None, head_of(1)]
    assert list(bad) == [2, 3, 4]
    assert id_of(found[0].as_py()) == 258
    assert payloads(raw).take([0, 5]).to_pylist() == [b"abc", b""]
