"""What every schema registry does: in a file and over HTTP."""

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.rest import Listener, Serving
from headrace_plugins.confluent.client import HttpSchemaRegistry, RegistrySettings
from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistryAdmin,
    SchemaText,
    SchemaType,
    resolve_references,
)
from headrace_registry.embedded import EmbeddedRegistry, service_in
from headrace_registry.rest import registry_app


def record(*fields: str, name: str = "R") -> SchemaText:
    """Return an Avro record; a field that ends with ? has a default."""
    described = [
        {"name": field.rstrip("?"), "type": "int", **({"default": 0} if "?" in field else {})}
        for field in fields
    ]
    return SchemaText(json.dumps({"type": "record", "name": name, "fields": described}))


class Swapped:
    """An application in place of which another can be put, as starting a server takes time."""

    app: Any

    async def __call__(self, scope, receive, send) -> None:
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Serving, Swapped]]:
    app = Swapped()
    with Serving(app, Listener(port=0)) as serving:
        serving.start()
        yield serving, app


@pytest.fixture(params=["embedded", "http"])
def registry(
    request: pytest.FixtureRequest, tmp_path: Path, server: tuple[Serving, Swapped]
) -> Iterator[SchemaRegistryAdmin]:
    with closing(service_in(tmp_path / "store.db")) as service:
        if request.param == "embedded":
            yield EmbeddedRegistry(service)
            return
        serving, app = server
        app.app = registry_app(service, serving.listener)
        values = {"schema.registry.url": serving.url, "latest.cache.ttl.sec": "0"}
        client = HttpSchemaRegistry(RegistrySettings.parsed(values))
        yield client
        client.close()


def refused(kind: type[Exception], code: int, call) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.error_code == code  # type: ignore[attr-defined]


def test_a_schema_has_one_id_and_a_version_in_each_subject(
    registry: SchemaRegistryAdmin,
) -> None:
    first = registry.register("a", record("x"))
    assert registry.register("a", record("x")) == first
    assert registry.register("b", record("x")) == first
    assert registry.register("a", record("x", "y?")) == first + 1
    assert registry.versions("a") == [1, 2]
    assert registry.subjects() == ["a", "b"]
    assert registry.latest("a").version == 2
    assert registry.version("a", 1).id == first
    assert json.loads(registry.by_id(first).text) == json.loads(record("x").text)


def test_layout_and_order_of_attributes_make_no_new_schema(
    registry: SchemaRegistryAdmin,
) -> None:
    first = registry.register("a", SchemaText('{"type": "map", "values": "int"}'))
    text = '{ "values" : {"type":"int"},\n "type" : "map" }'
    assert registry.register("a", SchemaText(text)) == first
    found = registry.lookup("a", SchemaText(text))
    assert (found.subject, found.version, found.id) == ("a", 1, first)


def test_normalizing_finds_what_means_the_same(registry: SchemaRegistryAdmin) -> None:
    one = SchemaText('{"type":"object","title":"t"}', SchemaType.JSON)
    other = SchemaText('{"title":"t","type":"object"}', SchemaType.JSON)
    first = registry.register("a", one)
    assert registry.lookup("a", other, normalize=True).id == first
    assert registry.register("a", other, normalize=True) == first
    assert registry.register("b", other) != first


def test_another_layout_of_a_protobuf_schema_is_the_same_schema(
    registry: SchemaRegistryAdmin,
) -> None:
    head = 'syntax = "proto3";'
    one = SchemaText(f"{head} message M {{ int32 x = 1; }}", SchemaType.PROTOBUF)
    other = SchemaText(f"{head}\n// M\nmessage M {{\n int32 x = 1;\n}}", SchemaType.PROTOBUF)
    first = registry.register("a", one)
    assert registry.by_id(first) == one
    assert registry.register("a", other) == first
    assert registry.register("b", other, normalize=True) == first


def test_what_was_never_registered_is_not_found(registry: SchemaRegistryAdmin) -> None:
    registry.register("a", record("x"))
    refused(SchemaNotFoundError, 40401, lambda: registry.latest("none"))
    refused(SchemaNotFoundError, 40401, lambda: registry.versions("none"))
    refused(SchemaNotFoundError, 40402, lambda: registry.version("a", 9))
    refused(SchemaNotFoundError, 40403, lambda: registry.by_id(99))
    refused(SchemaNotFoundError, 40403, lambda: registry.lookup("a", record("z")))
    refused(SchemaNotFoundError, 40401, lambda: registry.lookup("none", record("z")))


@pytest.mark.parametrize(
    "schema",
    [
        SchemaText(""),
        SchemaText("{"),
        SchemaText('"nothing"'),
        SchemaText('{"type":"record","name":"9","fields":[]}'),
        SchemaText('{"aliases":[[1]],"type":"record","name":"R","fields":[]}'),
        SchemaText('{"type":"nothing"}', SchemaType.JSON),
        SchemaText('{"$schema":{}}', SchemaType.JSON),
        SchemaText('{"not":' * 500 + "{}" + "}" * 500, SchemaType.JSON),
        SchemaText('{"$ref":"other.json"}', SchemaType.JSON),
        SchemaText("message", SchemaType.PROTOBUF),
        SchemaText('"string"', references=(SchemaReference("R", "none", 1),)),
    ],
    ids=lambda schema: schema.text[:12],
)
def test_what_is_no_schema_is_refused(
    registry: SchemaRegistryAdmin, schema: SchemaText
) -> None:
    refused(InvalidSchemaError, 42201, lambda: registry.register("a", schema))
    assert registry.subjects() == []


def test_an_incompatible_schema_is_refused_with_the_reasons(
    registry: SchemaRegistryAdmin,
) -> None:
    registry.register("a", record("x"))
    with pytest.raises(IncompatibleSchemaError, match="reader_field_missing_default"):
        registry.register("a", record("x", "y"))
    assert registry.versions("a") == [1]
    assert "reader_field_missing" in registry.incompatibilities("a", record("x", "y"))[0]
    assert registry.incompatibilities("a", record("x", "y?")) == []
    assert registry.incompatibilities("none", record("x")) == []


def test_another_language_is_incompatible(registry: SchemaRegistryAdmin) -> None:
    registry.register("a", record("x"))
    with pytest.raises(IncompatibleSchemaError, match="different schema type"):
        registry.register("a", SchemaText("{}", SchemaType.JSON))


@pytest.mark.parametrize(
    ("level", "added", "removed", "first_again"),
    [
        ("BACKWARD", False, True, True),
        ("BACKWARD_TRANSITIVE", False, True, False),
        ("FORWARD", True, False, True),
        ("FORWARD_TRANSITIVE", True, False, True),
        ("FULL", False, False, True),
        ("FULL_TRANSITIVE", False, False, False),
        ("NONE", True, True, True),
    ],
)
def test_each_level_allows_what_it_says(
    registry: SchemaRegistryAdmin,
    level: str,
    added: bool,
    removed: bool,
    first_again: bool,
) -> None:
    for schema in (record("x?"), record("x?", "y?")):
        registry.register("a", schema)
    registry.register("b", record("x", "y"))
    for subject in ("a", "b"):
        registry.set_compatibility(subject, level)
    assert (registry.incompatibilities("b", record("x", "y", "z")) == []) is added
    assert (registry.incompatibilities("b", record("x")) == []) is removed
    # A version between the two dropped the default of y, which only the first one misses.
    again = registry.incompatibilities("a", record("x?", "y"))
    assert (again == []) is first_again


def test_levels_are_inherited_and_can_be_unset(registry: SchemaRegistryAdmin) -> None:
    assert registry.compatibility(None) == "BACKWARD"
    registry.set_compatibility(None, "NONE")
    registry.set_compatibility("a", "full")
    assert [registry.compatibility(each) for each in ("a", "b", None)] == [
        "FULL",
        "NONE",
        "NONE",
    ]
    registry.set_compatibility("a", None)
    registry.set_compatibility(None, None)
    assert [registry.compatibility(each) for each in ("a", None)] == ["BACKWARD", "BACKWARD"]
    refused(RegistryRefusedError, 42203, lambda: registry.set_compatibility("a", "best"))


def test_a_deleted_version_is_hidden_and_its_id_still_read(
    registry: SchemaRegistryAdmin,
) -> None:
    first = registry.register("a", record("x"))
    registry.register("a", record("x", "y?"))
    refused(SchemaNotFoundError, 40407, lambda: registry.delete_version("a", 1, permanent=True))
    assert registry.delete_version("a", 1) == 1
    refused(SchemaNotFoundError, 40406, lambda: registry.delete_version("a", 1))
    assert (registry.versions("a"), registry.all_versions("a")) == ([2], [1, 2])
    assert registry.by_id(first) is not None
    assert registry.version("a", 1).id == first
    assert registry.delete_version("a", 1, permanent=True) == 1
    refused(SchemaNotFoundError, 40403, lambda: registry.by_id(first))
    refused(SchemaNotFoundError, 40402, lambda: registry.version("a", 1))


def test_a_deleted_subject_is_hidden_until_it_goes_for_good(
    registry: SchemaRegistryAdmin,
) -> None:
    refused(SchemaNotFoundError, 40401, lambda: registry.delete_subject("a"))
    for schema in (record("x"), record("x", "y?")):
        registry.register("a", schema)
    refused(SchemaNotFoundError, 40405, lambda: registry.delete_subject("a", permanent=True))
    assert registry.delete_subject("a") == [1, 2]
    refused(SchemaNotFoundError, 40404, lambda: registry.delete_subject("a"))
    assert (registry.subjects(), registry.all_subjects()) == ([], ["a"])
    refused(SchemaNotFoundError, 40401, lambda: registry.latest("a"))
    assert registry.delete_subject("a", permanent=True) == [1, 2]
    assert registry.all_subjects() == []


def test_a_schema_that_comes_back_keeps_its_id_and_gets_a_new_version(
    registry: SchemaRegistryAdmin,
) -> None:
    first = registry.register("a", record("x"))
    registry.delete_subject("a")
    assert registry.register("a", record("x")) == first
    assert (registry.versions("a"), registry.all_versions("a")) == ([2], [2])


def test_an_id_that_went_for_good_is_not_given_to_another_schema(
    registry: SchemaRegistryAdmin,
) -> None:
    first = registry.register("a", record("x"))
    registry.delete_subject("a")
    registry.delete_subject("a", permanent=True)
    assert registry.register("a", record("z")) > first


def test_references_are_resolved_and_keep_what_they_name(
    registry: SchemaRegistryAdmin,
) -> None:
    registry.register("inner", record("x", name="Inner"))
    uses = (SchemaReference("Inner", "inner", 1),)
    text = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'
    outer = SchemaText(text, references=uses)
    made = registry.register("outer", outer)
    assert registry.by_id(made).references == uses
    texts = resolve_references(
        lambda to: registry.version(to.subject, to.version).schema, registry.by_id(made)
    )
    assert list(texts) == ["Inner"]
    refused(RegistryRefusedError, 42206, lambda: registry.delete_subject("inner"))
    refused(RegistryRefusedError, 42206, lambda: registry.delete_version("inner", 1))
    registry.delete_subject("outer")
    assert registry.delete_subject("inner") == [1]
    refused(
        RegistryRefusedError, 42206, lambda: registry.delete_subject("inner", permanent=True)
    )
    registry.delete_subject("outer", permanent=True)
    assert registry.delete_subject("inner", permanent=True) == [1]


@pytest.mark.parametrize("name", ["a/b", "a b", "ü%2F?&#", "-1"])
def test_a_subject_may_have_any_name(registry: SchemaRegistryAdmin, name: str) -> None:
    registry.register(name, record("x"))
    assert registry.subjects() == [name]
    assert registry.latest(name).subject == name
    assert registry.delete_subject(name) == [1]


@pytest.mark.parametrize("name", ["", "a\nb", "__GLOBAL", ":.staging:a"])
def test_some_names_are_no_subjects(tmp_path: Path, name: str) -> None:
    with closing(EmbeddedRegistry(service_in(tmp_path / "store.db"))) as registry:
        refused(RegistryRefusedError, 42208, lambda: registry.register(name, record("x")))


def test_a_pickled_registry_is_the_same_registry(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(service_in(tmp_path / "store.db"))
    made = registry.register("a", record("x"))
    copy = pickle.loads(pickle.dumps(registry))  # noqa: S301 - our own
    assert copy.by_id(made) == registry.by_id(made)
    copy.close()
    registry.close()


def test_processes_that_register_at_once_agree_on_ids(tmp_path: Path) -> None:
    # Two stores on one file are what two processes have; each thread has its own.
    def worker(number: int) -> list[int]:
        with closing(EmbeddedRegistry(service_in(tmp_path / "store.db"))) as registry:
            mine = registry.register(f"s{number}", record(f"x{number}"))
            shared = [registry.register("all", record(f"y{n}?")) for n in range(5)]
            return [mine, *shared]

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(worker, range(4)))
    assert len({ids[0] for ids in made}) == 4
    assert len({tuple(ids[1:]) for ids in made}) == 1
    with closing(EmbeddedRegistry(service_in(tmp_path / "store.db"))) as registry:
        assert registry.versions("all") == [1, 2, 3, 4, 5]
