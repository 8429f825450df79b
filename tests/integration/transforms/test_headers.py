"""The header transforms and predicates on real Spark, with Kafka Connect's results."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from tests.integration.transforms.tried import Try, tried

from headrace.sdk import ConfigErrors, Schema, Struct
from headrace_plugins.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from headrace_plugins.transforms.headers import DropHeaders, HeaderFrom, InsertHeader

pytestmark = pytest.mark.spark

MAPS = "Only Map objects supported in absence of schema for"
X = (("h", "x", "string"),)
INNER = Schema.struct(
    {"a": Schema.int32(optional=True, default=1), "b": Schema.string(optional=True)}
)
ROW = Schema.struct(
    {
        "n": Schema.int32(optional=True, default=5),
        "s": Schema.string(optional=True),
        "in": INNER,
        "f": Schema.float32(),
        "b": Schema.bytes(),
        "list": Schema.array(Schema.string(optional=True)),
        "map": Schema.map(Schema.string(), Schema.int64()),
        "d": Schema.date(),
        "t": Schema.time(),
        "ts": Schema.timestamp(),
        "dec": Schema.decimal(2),
    },
)
VALUE = Struct.of(
    ROW,
    {
        "n": None,
        "s": None,
        "in": {"a": None, "b": 'q"\\'},
        "f": 1.5,
        "b": b"\x00\x01",
        "list": ["x", None],
        "map": {"k": 7},
        "d": date(1969, 12, 31),
        "t": time(1, 2, 3, 4000),
        "ts": datetime(2020, 1, 1, tzinfo=UTC),
        "dec": Decimal("1.20"),
    },
)


def headers(record: dict[str, Any]) -> list[tuple[str, str | None, str | None]] | None:
    found = record["headers"]
    return found and [(h["key"], h["type"], h["value"]) for h in found]


def insert(literal: str) -> dict[str, str]:
    return {"header": "h", "value.literal": literal}


def test_headers_are_inserted_with_parsed_values_and_dropped(spark) -> None:
    there = (HasHeaderKey, {"name": "h"})
    drop = {"headers": "h,i"}
    found = tried(
        spark,
        Try(InsertHeader, insert("123")),
        Try(InsertHeader, insert("[1,2]")),
        Try(InsertHeader, insert("a b"), headers=X),
        Try(InsertHeader, insert("null")),
        Try(InsertHeader, insert("it's"), headers=X, predicate=there),
        Try(InsertHeader, insert("1"), predicate=there),
        Try(DropHeaders, drop, headers=(*X, ("k", "1", "int8"), ("i", "2", "int8"), *X)),
        Try(DropHeaders, drop),
    )
    assert [headers(record) for record in found] == [
        [("h", "int8", "123")],
        [("h", "array", "[1,2]")],
        [("h", "string", "x"), ("h", "string", "a b")],
        [("h", None, None)],
        [("h", "string", "x"), ("h", "string", "it's")],
        None,
        [("k", "int8", "1")],
        None,
    ]


def copied(fields: str, operation: str = "copy", **config: str) -> dict[str, str]:
    names = {"fields": fields, "headers": fields.replace(".", "_"), "operation": operation}
    return names | {key.replace("_", "."): value for key, value in config.items()}


def test_fields_become_headers_with_their_types_and_defaults(spark) -> None:
    everything = ",".join(field.name for field in ROW.fields)
    [all_of, moved, nested, kept_null] = tried(
        spark,
        Try(HeaderFrom, copied(everything), VALUE, ROW),
        Try(HeaderFrom, copied("s,f", "move"), VALUE, ROW),
        Try(HeaderFrom, copied("in.b", "move", field_syntax_version="V2"), VALUE, ROW),
        Try(HeaderFrom, copied("n", replace_null_with_default="false"), VALUE, ROW),
    )
    assert headers(all_of) == [
        ("n", "int32", "5"),
        ("s", "string", None),
        ("in", "struct", '{"a":1,"b":"q\\"\\\\"}'),
        ("f", "float32", "1.5"),
        ("b", "bytes", "AAE="),
        ("list", "array", '["x",null]'),
        ("map", "map", '{"k":7}'),
        ("d", "date", "1969-12-31"),
        ("t", "time", "01:02:03.004Z"),
        ("ts", "timestamp", "2020-01-01T00:00:00.000Z"),
        ("dec", "decimal", "1.20"),
    ]
    assert all_of["value"]["n"] is None
    assert headers(moved) == [("s", "string", None), ("f", "float32", "1.5")]
    assert (moved["value"]["n"], "s" in moved["value"], "f" in moved["value"]) == (
        5,
        False,
        False,
    )
    assert headers(nested) == [("in_b", "string", 'q"\\')]
    assert nested["value"]["in"] == {"a": None}
    assert headers(kept_null) == [("n", "int32", None)]


def test_records_that_have_no_fields_for_headers_are_rejected_in_kafkas_words(spark) -> None:
    optional = Schema.struct({"a": Schema.int64()}, optional=True)
    a = copied("a")
    found = tried(
        spark,
        Try(HeaderFrom, a, 1),
        Try(HeaderFrom, a, "x", Schema.string(optional=True), schemaless=True),
        Try(HeaderFrom, a, None, optional),
        Try(HeaderFrom, copied("a", "move"), None, None),
        Try(HeaderFrom, copied("zz"), Struct(optional, {"a": 1}), optional),
        Try(HeaderFrom, copied("zz"), Struct(optional, {"a": 1}), optional, schemaless=True),
        Try(HeaderFrom, a, Struct(optional, {"a": 1}), optional, of_key=True),
        Try(HeaderFrom, copied("zz"), None, optional),
    )
    messages = [record["error"] and record["error"]["message"] for record in found]
    assert messages[:4] == [
        "Only Struct objects supported for [header copy], found: java.lang.Long",
        f"{MAPS} [header copy], found: java.lang.String",
        "Only Struct objects supported for [header copy], found: null",
        f"{MAPS} [header move], found: null",
    ]
    assert messages[4] == "Field does not exist: zz"
    assert found[4]["error"]["exception"] == "java.lang.NullPointerException"
    assert headers(found[5]) == [("zz", None, None)]
    assert messages[7] == messages[2]
    assert headers(found[6]) == [("a", "int64", "1")]


def test_predicates_know_topics_headers_and_tombstones(spark) -> None:
    def with_predicate(kind, config: dict[str, str], **record) -> Try:
        return Try(InsertHeader, insert("yes"), predicate=(kind, config), **record)

    whole = {"topic": "my-topic", "constant_topic": False}
    struct = Schema.struct({"a": Schema.int32()}, optional=True)
    found = tried(
        spark,
        with_predicate(TopicNameMatches, {"pattern": "my-.*"}, topic="my-topic"),
        with_predicate(TopicNameMatches, {"pattern": "topic"}, topic="my-topic"),
        with_predicate(TopicNameMatches, {"pattern": "x|my-t|my-topic"}, **whole),
        with_predicate(TopicNameMatches, {"pattern": "my"}, **whole),
        with_predicate(HasHeaderKey, {"name": "h"}, headers=X),
        with_predicate(HasHeaderKey, {"name": "H"}, headers=X),
        with_predicate(RecordIsTombstone, {}, value=None),
        with_predicate(RecordIsTombstone, {}, value=None, schema=None),
        with_predicate(RecordIsTombstone, {}, value=None, schema=struct),
        with_predicate(RecordIsTombstone, {}, value=Struct(struct, {"a": 1}), schema=struct),
        with_predicate(RecordIsTombstone, {}),
    )
    told = [("h", "string", "yes") in (headers(record) or []) for record in found]
    assert told == [
        *(True, False, True, False),
        *(True, False),
        *(True, True, True, False, False),
    ]


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        (HeaderFrom, copied("a,b") | {"headers": "x"}, "the same number of elements"),
        (HeaderFrom, copied(""), "Empty list"),
        (HeaderFrom, copied("a", "swap"), "String must be one of: move, copy"),
        (InsertHeader, {"header": "h"}, 'Missing required configuration "value.literal"'),
        (DropHeaders, {"headers": "a,a"}, "must not be duplicated"),
        (TopicNameMatches, {"pattern": "("}, "Invalid regex"),
        (TopicNameMatches, {"pattern": ""}, "String must be non-empty"),
        (HasHeaderKey, {"name": ""}, "String must be non-empty"),
    ],
)
def test_wrong_keys_are_refused(kind, config: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        kind.config_def().parse(config)
