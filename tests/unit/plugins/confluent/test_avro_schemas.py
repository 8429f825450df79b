"""Avro schemas and those of Kafka Connect, as Confluent's converter has them."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import avro.schema
import pytest

from headrace.sdk import RecordError, Schema
from headrace.sdk.struct import Struct
from headrace_plugins.confluent.avro_schemas import ENUM, UNION, avro_of, connect_of, parse_avro


def read(tree: Any, *, enhanced: bool = False) -> Schema:
    return connect_of(parse_avro(json.dumps(tree)), enhanced=enhanced)


def record(*fields: dict[str, Any], name: str = "R", **facts: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **facts}


def of(type_: Any, **facts: Any) -> Schema:
    """The schema of a record's field of a type."""
    found = read(record({"name": "f", "type": type_, **facts})).field("f")
    assert found is not None
    return found.schema


SYMBOLS = {ENUM: "a.E", f"{ENUM}.X": "X", f"{ENUM}.Y": "Y"}


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        ("int", Schema.int32()),
        ({"type": "int", "connect.type": "int8"}, Schema.int8()),
        ({"type": "int", "connect.type": "int16"}, Schema.int16()),
        ("long", Schema.int64()),
        ({"type": {"type": "long"}}, Schema.int64()),
        ({"type": "int", "logicalType": "date"}, Schema.date()),
        ({"type": "int", "logicalType": "time-millis"}, Schema.time()),
        ({"type": "long", "logicalType": "time-micros"}, Schema.time()),
        ({"type": "long", "logicalType": "timestamp-millis"}, Schema.timestamp()),
        ({"type": "long", "logicalType": "timestamp-micros"}, Schema.timestamp()),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, Schema.int64()),
        ({"type": "string", "logicalType": "uuid"}, Schema.string()),
        ({"type": "int", "logicalType": "timestamp-millis"}, Schema.int32()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Schema.decimal(2, precision=9),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64}, Schema.decimal(0)),
        (
            {"type": "enum", "name": "E", "namespace": "a", "symbols": ["X", "Y"]},
            Schema.string(name="a.E", parameters=SYMBOLS),
        ),
        (
            {"type": "fixed", "name": "F", "size": 4},
            Schema.bytes(name="F", parameters={"connect.fixed.size": "4"}),
        ),
        (
            {"type": "array", "items": ["null", "int"]},
            Schema.array(Schema.int32(optional=True)),
        ),
        ({"type": "map", "values": "int"}, Schema.map(Schema.string(), Schema.int32())),
        (["null", "string"], Schema.string(optional=True)),
        (["string", "null"], Schema.string(optional=True)),
        (["string"], Schema.string()),
        (
            ["null", "int", "string"],
            Schema.struct(
                {"int": Schema.int32(optional=True), "string": Schema.string(optional=True)},
                name=UNION,
                optional=True,
            ),
        ),
        (
            {
                "type": "array",
                "items": record(
                    {"name": "key", "type": "int"},
                    {"name": "value", "type": "string"},
                    name="MapEntry",
                    namespace="io.confluent.connect.avro",
                ),
            },
            Schema.map(Schema.int32(), Schema.string()),
        ),
        (
            record({"name": "x", "type": "int"}, name="ConnectDefault",
                   namespace="io.confluent.connect.avro"),
            Schema.struct({"x": Schema.int32()}),
        ),
    ],
)  # fmt: skip
def test_a_type_is_what_confluents_converter_makes_of_it(type_: Any, schema: Schema) -> None:
    assert of(type_) == schema


@pytest.mark.parametrize(
    ("type_", "default", "value"),
    [
        ("int", 5, 5),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         "\u0001\u0000", Decimal("2.56")),
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_000_000,
         datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ({"type": "int", "logicalType": "time-millis"}, 1000, time(0, 0, 1)),
        ({"type": "array", "items": "int"}, [1, 2], (1, 2)),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
    ],
)  # fmt: skip
def test_a_fields_default_is_kept(type_: Any, default: Any, value: Any) -> None:
    assert of(type_, default=default).default == value


def test_properties_tell_what_avro_has_no_words_for() -> None:
    schema = of(
        {
            "type": "string",
            "connect.name": "a.B",
            "connect.version": 3,
            "connect.parameters": {"p": "q"},
            "connect.doc": "text",
        }
    )
    known = Schema.string(name="a.B", version=3, parameters={"p": "q"}, doc="text")
    assert schema == known
    assert of("int", doc="of the field").doc == "of the field"


def test_branches_of_a_union_are_called_by_full_names_where_that_is_wanted() -> None:
    tree = ["string", record({"name": "x", "type": "int"}, name="In", namespace="a.b")]
    assert [field.name for field in read(tree).fields] == ["string", "In"]
    assert [field.name for field in read(tree, enhanced=True).fields] == ["string", "a.b.In"]


def test_names_are_found_in_the_namespace_around_them_and_in_references() -> None:
    inner = record({"name": "x", "type": "int"}, name="In", namespace="a")
    other = json.dumps(record({"name": "y", "type": "long"}, name="b.Far"))
    tree = record(
        {"name": "one", "type": inner},
        {"name": "two", "type": "In"},
        {"name": "far", "type": "b.Far"},
        name="Out",
        namespace="a",
    )
    schema = connect_of(parse_avro(json.dumps(tree), {"b.Far": other}))
    assert [field.schema.name for field in schema.fields] == ["a.In", "a.In", "b.Far"]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        (record({"name": "me", "type": ["null", "R"]}), "contains itself"),
        ("Nobody", "does not define Nobody"),
        (record({"name": "a", "type": "int"}, {"name": "A", "type": "int"}), "only in case"),
        ("null", "Standalone null"),
        (["int", "int", "string"], "different names"),
        ({"type": "record", "name": "R"}, "Invalid Avro schema"),
        ({"type": "fixed", "name": "F"}, "Invalid Avro schema"),
        (17, "Invalid Avro schema"),
    ],
)
def test_a_schema_without_columns_is_refused(tree: Any, told: str) -> None:
    with pytest.raises(RecordError, match=told):
        read(tree)


KIN = Schema.struct({"a": Schema.int64()}, name="a.b.Kin", version=2)
WHOLE = Schema.struct(
    {
        "small": Schema.int8(default=3),
        "text": Schema.string(optional=True),
        "with_default": Schema.string(optional=True, default="x"),
        "raw": Schema.bytes(default=b"\x00\xff"),
        "price": Schema.decimal(2, precision=9, default=Decimal("-1.25")),
        "loose": Schema.decimal(2),
        "day": Schema.date(default=date(1969, 12, 31)),
        "clock": Schema.time(default=time(1, 2, 3)),
        "at": Schema.timestamp(default=datetime(2024, 1, 1, tzinfo=UTC)),
        "tags": Schema.array(Schema.string(), default=["a"]),
        "names": Schema.map(Schema.string(), Schema.int32(optional=True), default={"k": 1}),
        "codes": Schema.map(Schema.int32(), Schema.string()),
        "more": Schema.map(Schema.int64(), Schema.string()),
        "kin": KIN.replaced(default=Struct(KIN, {"a": 1})),
        "again": KIN.replaced(optional=True),
        "plain": Schema.struct({"x": Schema.int32(doc="an x")}),
        "other": Schema.struct({"y": Schema.float64(default=0.5)}, optional=True),
        "level": Schema.string(name="a.E", parameters=SYMBOLS),
        "hash": Schema.bytes(name="a.F", parameters={"connect.fixed.size": "4"}),
        "either": Schema.struct(
            {"int": Schema.int32(optional=True), "Kin": KIN.replaced(optional=True)},
            name=UNION,
        ),
    },
    name="shop.Order",
    doc="An order",
)


def test_a_schema_comes_back_from_avro_as_it_was() -> None:
    text = json.dumps(avro_of(WHOLE, enhanced=True))
    avro.schema.parse(text)
    assert connect_of(parse_avro(text)) == WHOLE


def test_without_metadata_only_avros_own_words_are_used() -> None:
    text = json.dumps(avro_of(WHOLE, facts=False))
    assert "connect." not in text.replace("io.confluent.connect.", "").replace(
        "connect.internal.type", ""
    )


def test_optional_fields_are_unions_whose_default_is_of_the_first_branch() -> None:
    fields = {field["name"]: field for field in avro_of(WHOLE)["fields"]}
    assert fields["text"]["type"] == ["null", "string"]
    assert fields["text"]["default"] is None
    assert fields["with_default"]["type"][1] == "null"
    assert fields["with_default"]["default"] == "x"
    assert fields["again"]["type"] == ["null", "a.b.Kin"]


@pytest.mark.parametrize(
    "schema",
    [
        Schema.struct({"no name": Schema.int32()}),
        Schema.struct({"a": Schema.int32()}, name="1a"),
        Schema.struct({"a": KIN, "b": KIN.with_fields({"z": Schema.int32()})}),
    ],
)
def test_what_avro_cannot_name_is_refused(schema: Schema) -> None:
    with pytest.raises(RecordError):
        avro_of(schema)
