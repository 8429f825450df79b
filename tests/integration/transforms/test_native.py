"""Sql, Route, Shard, Unwrap and Mask: what they make of records, as one stage."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.dataplane.flow_doubles import Kept, batch, condition, flow, transform

from headrace.dataplane import Step
from headrace.dataplane.chain import apply_chain
from headrace.dataplane.records import record_frame
from headrace.sdk import ConfigError, Schema
from headrace.sdk.sink import Counting
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.fields import InsertField
from headrace_plugins.transforms.masks import Mask
from headrace_plugins.transforms.routers import Route, Shard
from headrace_plugins.transforms.sql import Filter, Sql
from headrace_plugins.transforms.unwrap import Unwrap

pytestmark = pytest.mark.spark


def chained(spark, query: str, *steps: Step, topic: str = "orders_7"):
    return apply_chain(record_frame(spark.sql(query), topic), steps)


def run(spark, query: str, *steps: Step, topic: str = "orders_7") -> list[dict[str, Any]]:
    records = chained(spark, query, *steps, topic=topic)
    fate = [
        f"{getattr(records.shape, name) or 'NULL'} AS {name}" for name in ("dropped", "error")
    ]
    rows = records.frame.selectExpr(*records.columns(), *fate).collect()
    return [row.asDict(recursive=True) for row in rows]


def step(kind, **config: str) -> Step:
    return Step(transform(kind, "it", **config))


ORDERS = """SELECT IF(id = 3, NULL, struct(id, 'n' || id AS name, id * 1.5D AS price)) AS value,
'k' || id AS key FROM range(4) ORDER BY id"""


def test_a_select_makes_the_value_and_its_where_drops(spark) -> None:
    query = "SELECT * EXCEPT (name), upper(name) AS name, record.key AS `the key` WHERE id <> 1"
    rows = run(spark, ORDERS, step(Sql, query=query))
    assert [row["value"] for row in rows if row["dropped"] is None] == [
        {"id": 0, "price": 0.0, "name": "N0", "the key": "k0"},
        {"id": 2, "price": 3.0, "name": "N2", "the key": "k2"},
        None,
    ]
    assert [row["dropped"] for row in rows] == [None, "it", None, None]


def test_a_select_knows_its_types_and_can_be_limited_by_a_predicate(spark) -> None:
    limited = Step(transform(Sql, "it", query="SELECT id, name"), condition("id = 1"))
    records = chained(spark, ORDERS, limited)
    schema = records.shape.value.schema
    assert schema is not None
    assert schema.field("id").schema == Schema.int64(optional=True)
    values = [row["value"] for row in run(spark, ORDERS, limited)]
    assert values[1] == {"id": 1, "name": "n1", "price": None}
    assert values[2] == {"id": 2, "name": "n2", "price": 3.0}


def test_a_select_of_what_is_not_there_is_a_clear_error(spark) -> None:
    with pytest.raises(ConfigError, match="nothing_such") as caught:
        run(spark, ORDERS, step(Sql, query="SELECT nothing_such"))
    assert caught.value.field == "transforms.it"


def test_sql_may_end_in_a_comment(spark) -> None:
    steps = [
        step(Sql, query="SELECT id, id + 1 AS next -- the next\nWHERE id < 3 -- not all"),
        step(Filter, condition="next > 1 -- not the first"),
    ]
    rows = run(spark, ORDERS.replace("IF(id = 3, NULL,", "("), *steps)
    assert [row["value"] for row in rows if row["dropped"] is None] == [
        {"id": 1, "next": 2},
        {"id": 2, "next": 3},
    ]


def test_topics_are_renamed_by_the_first_rule_that_matches(spark) -> None:
    rules = r"orders_(\d) -> all.orders; (?<kind>\w+)_(\d+) -> ${kind}"
    for topic, name in [("orders_7", "all.orders"), ("items_12", "items"), ("a.b", "a.b")]:
        rows = run(spark, ORDERS, step(Route, routes=rules), topic=topic)
        assert {row["topic"] for row in rows} == {name}
    dropped = run(spark, ORDERS, step(Route, routes=rules, unmatched="drop"), topic="a.b")
    assert {row["dropped"] for row in dropped} == {"it"}


def test_rules_that_only_java_knows_and_those_of_one_topic_agree(spark) -> None:
    for rules in (r"(?x) (\w+) _ \d # shards -> $1", r"(\p{Lower}+)_\d -> $1"):
        rows = run(spark, ORDERS, step(Route, routes=rules))
        assert {row["topic"] for row in rows} == {"orders"}
    constant = chained(spark, ORDERS, step(Route, routes=r"(\w+)_\d -> $1"))
    assert constant.shape.topic == "'orders'"


def test_a_route_of_one_stream_is_one_topic_to_the_flow(spark) -> None:
    sink = Kept()
    routed = step(Route, routes="num.* -> all")
    flow(spark, [sink], routed).run(batch(1, 0, 10))
    assert list(sink.marks) == ["copy-uid-0"]
    assert {row["topic"] for row in sink.rows} == {"all"}


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        ({"strategy": "hash", "shards": "1"}, {"0", "null"}),
        ({"strategy": "range", "bounds": "1,2.5"}, {"0", "1", "null"}),
    ],
)
def test_a_shard_is_chosen_by_hash_or_range(spark, config, topics) -> None:
    rows = run(spark, ORDERS, step(Shard, field="id", **config))
    assert {row["topic"].removeprefix("orders_7_") for row in rows} == topics


@pytest.mark.parametrize(
    ("sql", "bounds", "shard"),
    [
        ("DATE'2026-03-01'", "2026-01-01, 2026-03-01, 2026-06-01", "2"),
        ("TIMESTAMP'2026-03-01 10:00:00Z'", "2026-03-01T09:00:00Z,2026-03-01T10:00:01", "1"),
        ("CAST(1.25 AS DECIMAL(5,2))", "-1, 1.25, 1e3", "2"),
        ("'m'", "a,m,z", "2"),
    ],
)
def test_bounds_are_read_as_values_of_the_field(spark, sql, bounds, shard) -> None:
    config = {"field": "f", "strategy": "range", "bounds": bounds, "topic_format": "${shard}"}
    (row,) = run(spark, f"SELECT struct({sql} AS f) AS value", step(Shard, **config))
    assert row["topic"] == shard


@pytest.mark.parametrize(
    ("sql", "bounds", "said"),
    [
        ("1", "1,x", "Expected a number, got 'x'"),
        ("1", "10,5", "5 is not larger than 10"),
        ("1D", "NaN", "Expected a number, got 'NaN'"),
        ("DATE'2026-03-01'", "soon", "Expected a date .*, got 'soon'"),
        ("TIMESTAMP'2026-03-01'", "soon", "Expected a time .*, got 'soon'"),
    ],
)
def test_bounds_that_are_none_are_refused_before_data_moves(spark, sql, bounds, said) -> None:
    config = {"field": "f", "strategy": "range", "bounds": bounds}
    with pytest.raises(ConfigError, match=said):
        chained(spark, f"SELECT struct({sql} AS f) AS value", step(Shard, **config))


def test_a_hash_is_the_same_whatever_the_number_s_width(spark) -> None:
    narrow = ORDERS.replace("struct(id,", "struct(CAST(id AS INT) AS id,")
    config = {"field": "id", "shards": "1000", "topic_format": "${shard}"}
    found = [
        [row["topic"] for row in run(spark, q, step(Shard, **config))] for q in (ORDERS, narrow)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 4


def test_a_shard_is_chosen_by_date_in_its_zone(spark) -> None:
    times = """SELECT struct(t) AS value FROM VALUES (TIMESTAMP '2026-01-31 23:30:00Z'),
    (NULL) AS v(t)"""
    config = {
        "field": "t",
        "strategy": "date",
        "pattern": "yyyyMM",
        "topic_format": "t-${shard}",
    }
    assert [r["topic"] for r in run(spark, times, step(Shard, **config))] == [
        "t-202601",
        "t-null",
    ]
    config["time_zone"] = "Europe/Paris"
    texts = times.replace("TIMESTAMP ", "")
    for query in (times, texts):
        rows = run(spark, query, step(Shard, **config))
        assert [row["topic"] for row in rows] == ["t-202602", "t-null"]


CHANGES = """SELECT IF(op = 'none', NULL, named_struct(
'before', IF(op IN ('u', 'd'), struct(n AS id, 'old' AS name), NULL),
'after', IF(op IN ('c', 'u', 'r'), struct(n AS id, 'new' AS name), NULL),
'op', op, 'source', struct('shop' AS db, 'orders' AS table, n AS lsn), 'ts', 1000L + n))
AS value, n AS key
FROM VALUES ('c', 1), ('u', 2), ('d', 3), ('r', 4), ('t', 5), ('none', 6) AS v(op, n)
ORDER BY n"""


@pytest.mark.parametrize(
    ("mode", "values"),
    [
        ("delete-to-tombstone", {1: "new", 2: "new", 3: None, 4: "new"}),
        ("drop", {1: "new", 2: "new", 4: "new"}),
        ("tombstone", {1: "new", 2: "new", 4: "new", 6: None}),
        ("rewrite", {1: "new", 2: "new", 3: "old", 4: "new"}),
        ("rewrite-with-tombstone", {1: "new", 2: "new", 3: "old", 4: "new", 6: None}),
    ],
)
def test_changes_become_rows_and_deletions_what_the_mode_says(spark, mode, values) -> None:
    config = {"delete_tombstone_handling_mode": mode}
    rows = run(spark, CHANGES, step(Unwrap, **config))
    left = {row["key"]: row["value"] for row in rows if row["dropped"] is None}
    assert {key: value and value["name"] for key, value in left.items()} == values
    if mode.startswith("rewrite"):
        assert left[3] == {"id": 3, "name": "old", "__deleted": "true"}
        assert left[2]["__deleted"] == "false"


@pytest.mark.parametrize("after", ["", ", CAST(NULL AS STRING) AS after"])
def test_deletions_of_plain_json_are_known_before_any_row_was_seen(spark, after) -> None:
    """All that JSON tells of a field that is always null is its name, or not even that."""
    query = f"SELECT struct('d' AS op, struct(1 AS id) AS before{after}) AS value"
    records = record_frame(spark.sql(query), "t")
    value = replace(records.shape.value, schemaless=True)
    records = replace(records, shape=replace(records.shape, value=value))
    for mode, left in (("rewrite", {"id": 1, "__deleted": "true"}), ("tombstone", "dropped")):
        unwrap = step(Unwrap, delete_tombstone_handling_mode=mode)
        after_it = apply_chain(records, [unwrap])
        dropped = f"{after_it.shape.dropped} AS dropped"
        (row,) = after_it.frame.selectExpr(*after_it.columns(), dropped).collect()
        found = row.asDict(recursive=True)
        assert ("dropped" if found["dropped"] else found["value"]) == left


@pytest.mark.parametrize("mode", ["delete-to-tombstone", "rewrite-with-tombstone"])
def test_a_field_of_the_row_names_the_topic(spark, mode) -> None:
    config = {"delete_tombstone_handling_mode": mode, "route_by_field": "name"}
    rows = run(
        spark, CHANGES.replace("'new'", "IF(op = 'r', NULL, 'new')"), step(Unwrap, **config)
    )
    left = {row["key"]: row for row in rows if row["dropped"] is None}
    topics = {key: row["topic"] for key, row in left.items() if row["error"] is None}
    tombstone = {6: "orders_7"} if mode == "rewrite-with-tombstone" else {}
    assert topics == {1: "new", 2: "new", 3: "old", **tombstone}
    assert "route.by.field is null" in left[4]["error"]["message"]


def test_a_topic_cannot_be_named_by_a_field_that_is_not_there(spark) -> None:
    rows = run(spark, CHANGES, step(Unwrap, route_by_field="zone"))
    assert {row["error"]["message"] for row in rows} == {"zone is not a valid field name"}


def test_metadata_of_a_change_becomes_fields_and_headers(spark) -> None:
    config = {"add_fields": "op,source.table,lsn:position,ts", "add_headers": "db"}
    first = run(spark, CHANGES, step(Unwrap, **config))[0]
    assert first["value"] == {
        "id": 1,
        "name": "new",
        "__op": "c",
        "__source_table": "orders",
        "__position": 1,
        "__ts": 1001,
    }
    assert first["headers"] == [{"key": "__db", "value": "shop", "type": "string"}]


def test_a_value_and_its_error_share_one_cast(spark) -> None:
    texts = "SELECT struct(id, 't' || id AS text) AS value FROM range(3)"
    records = chained(spark, texts, step(Cast, spec="text:int32"))
    good = records.frame.where(f"{records.shape.error} IS NULL").selectExpr(*records.columns())
    plan = good._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("try_cast(") == 1


class Apart(Kept):
    """Takes values apart, as most sinks do, and keeps Spark's plan."""

    plan = ""

    def write(self, frame, batch):
        fields = frame.selectExpr("value.*")
        self.plan = fields._jdf.queryExecution().optimizedPlan().toString()
        return super().write(frame, batch)


def test_a_sink_that_takes_values_apart_makes_spark_put_none_together(spark) -> None:
    sink = Apart()
    sink.counting = Counting.MEASURED  # type: ignore[misc]  # of this one
    computed = step(Sql, query="SELECT upper('a' || id) AS a, lower('B' || id) AS b")
    flow(spark, [sink], computed).run(batch(1, 0, 2))
    assert [row["value"] for row in sink.rows] == [
        {"a": "A0", "b": "b0"},
        {"a": "A1", "b": "b1"},
    ]
    assert "named_struct" not in sink.plan


def test_what_is_not_a_change_passes(spark) -> None:
    assert run(spark, ORDERS, step(Unwrap))[1]["value"]["name"] == "n1"


MIXED = """SELECT from_json(text, 'pk BIGINT, before STRUCT<pk: BIGINT, name: STRING>,
after STRUCT<pk: BIGINT, name: STRING>, op STRING, ts BIGINT, note STRING') AS value FROM VALUES
(1, '{"pk":1,"before":null,"after":{"pk":1,"name":"a"},"op":"c"}'),
(2, '{"pk":1,"note":"hello"}'),
(3, '{"pk":2,"before":{"pk":2,"name":"b"},"op":"d"}'),
(4, '{"pk":3,"op":"d"}'),
(5, '{"pk":4,"op":"delivered","ts":1}'),
(6, '{"pk":5,"op":"u","before":{"pk":5}}'),
(7, '{"pk":6,"op":"d","ts":1}') AS v(n, text) ORDER BY n"""


@pytest.mark.parametrize("mode", ["delete-to-tombstone", "drop", "rewrite"])
def test_records_that_are_not_changes_pass_beside_changes(spark, mode) -> None:
    """They became tombstones, which delete rows, or rows of nulls."""
    deleted = {"__deleted": "false"} if mode == "rewrite" else {}
    rows = run(spark, MIXED, step(Unwrap, delete_tombstone_handling_mode=mode))
    created, other, gone, *faults, keyless = rows
    assert created["value"] == {"pk": 1, "name": "a", "note": None} | deleted
    none = dict.fromkeys(deleted)
    assert other["value"] == {"pk": 1, "name": None, "note": "hello"} | none
    assert (other["dropped"], other["error"]) == (None, None)
    left = {"pk": 2, "name": "b", "note": None, "__deleted": "true"}
    for row in (gone, keyless):
        assert (row["dropped"] is not None) == (mode == "drop")
    if mode != "drop":
        assert gone["value"] == (left if mode == "rewrite" else None)
    messages = [row["error"]["message"] for row in faults]
    assert "no place for its fields op" in messages[0]
    assert ["no after row" in message for message in messages[1:]] == [True, True]


def test_headers_topics_and_fields_are_of_changes_only(spark) -> None:
    config = {"add_fields": "op", "add_headers": "op", "route_by_field": "name"}
    created, other, gone, *_ = run(spark, MIXED, step(Unwrap, **config))
    assert (created["topic"], created["value"]["__op"], len(created["headers"])) == (
        "a",
        "c",
        1,
    )
    assert (other["topic"], other["value"]["__op"], other["headers"]) == (
        "orders_7",
        None,
        None,
    )
    assert (gone["topic"], gone["value"]) == ("b", None)


def test_rows_that_some_records_only_have_are_bad_records(spark) -> None:
    query = """SELECT struct('c' AS op, parse_json(text) AS after) AS value
    FROM VALUES ('{"id":1}'), ('5') AS v(text)"""
    rows = run(spark, query, step(Unwrap))
    assert {row["error"]["message"] for row in rows} == {
        "The field after is a row only in some records"
    }


def test_a_masked_value_is_the_same_for_the_same_salt_only(spark) -> None:
    def names(salt: str) -> list[str | None]:
        rows = run(spark, ORDERS, step(Mask, fields="name,id", salt=salt))
        return [row["value"] and row["value"]["name"] for row in rows]

    first = names("pepper")
    inner, outer = (
        hashlib.sha256(side + b"pepper").hexdigest() for side in (b"inner:", b"outer:")
    )
    once = hashlib.sha256((inner + "n0").encode()).hexdigest()
    assert first[0] == hashlib.sha256((outer + once).encode()).hexdigest()
    assert first == names("pepper")
    assert first[0] != names("paprika")[0]
    assert first[3] is None


def test_a_salt_is_in_no_plan(spark) -> None:
    records = chained(spark, ORDERS, step(Mask, fields="name", salt="pepper"))
    assert "pepper" not in records.frame._jdf.queryExecution().toString()


def test_a_format_keeps_separators_and_the_last_characters(spark) -> None:
    cards = """SELECT struct(a) AS value FROM VALUES ('1234-5678-9012'), ('é1'), ('123'), (NULL)
    AS v(a)"""
    config = {"fields": "a", "method": "format", "keep_last": "4"}
    rows = run(spark, cards, step(Mask, **config))
    assert [row["value"]["a"] for row in rows] == ["****-****-9012", "**", "***", None]
    config |= {"keep_first": "1", "keep_separators": "false", "character": "#"}
    assert run(spark, cards, step(Mask, **config))[0]["value"]["a"] == "1#########9012"


def test_a_chain_of_them_is_one_stage(spark) -> None:
    records = chained(
        spark,
        CHANGES.replace(" ORDER BY n", "").replace("\nORDER BY n", ""),
        step(Unwrap, add_fields="op"),
        step(Sql, query="SELECT *, id + 1 AS next WHERE name <> 'none'"),
        step(Mask, fields="name", salt="s"),
        step(Filter, condition="id < 100"),
        step(InsertField, static_field="a", static_value="b"),
        step(Shard, field="id", shards="4"),
        step(Route, routes="(.*)_7_(.*) -> $1.$2"),
    )
    plan = records.frame.selectExpr(*records.columns())._jdf.queryExecution().executedPlan()
    text = plan.toString()
    assert "Exchange" not in text
    assert text.count("Project") <= 1


def test_a_text_keeps_what_looks_like_a_variable_of_spark(spark) -> None:
    constant = step(InsertField, static_field="a", static_value="${user.name} ${x}")
    assert run(spark, ORDERS, constant)[0]["value"]["a"] == "${user.name} ${x}"
