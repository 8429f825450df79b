"""Mapping rules without Spark: how they are read, what they match, which columns they give."""

import json
from typing import Any

import pytest

from headrace.sdk import ConfigError, ConfigErrors, Schema
from headrace.sdk.schema import PRIMARY_KEY, primary_key
from headrace_plugins.table_mapping import TableRules, TableSettings
from headrace_plugins.target_table import TableSelection

ORDERS = Schema.struct(
    {
        "id": Schema.int64(),
        "price": Schema.string(optional=True),
        "note": Schema.string(optional=True),
    },
    parameters={PRIMARY_KEY: '["id"]'},
)


def rules(*each: dict[str, Any], **texts: str) -> TableRules:
    props = {"table.mapping": json.dumps(each)} if each else {}
    props |= {key.replace("_", "."): text for key, text in texts.items()}
    return TableRules.of(TableSettings.parsed(props))


def select(rule: dict[str, Any], schema: Schema = ORDERS, **options: Any) -> TableSelection:
    [target] = rules({"from": "t", **rule}).targets("t")
    return target.select(schema, **options)


def wrong(*each: Any, **texts: str) -> list[tuple[str | None, str, str | None]]:
    with pytest.raises(ConfigErrors) as told:
        rules(*each, **texts)
    return [(error.field, error.problem, error.fix) for error in told.value.errors]


def test_without_rules_the_format_names_the_table() -> None:
    assert [t.name for t in rules().targets("public.orders")] == ["public.orders"]
    found = rules(table_name_format="${schema}_${table}").targets("public.orders")
    assert [target.name for target in found] == ["public_orders"]
    assert found[0].is_plain


def test_all_rules_that_match_count_and_the_smallest_priority_comes_first() -> None:
    found = rules(
        {"from": "shop_*", "to": "all", "priority": 7},
        {"from": ["shop_1", "x"], "to": "first"},
        {"from": "other"},
        {"from": "/shop_([0-9]+)/", "to": "s${1}", "priority": -1},
    ).targets("shop_1")
    assert [(t.name, t.rule) for t in found] == [("s1", 3), ("first", 1), ("all", 0)]


def test_shards_go_into_one_table() -> None:
    found = rules({"from": "offer[0000-0031]", "to": "offer"})
    assert {t.name for n in range(32) for t in found.targets(f"offer{n:04}")} == {"offer"}
    assert [t.name for t in found.targets("offer0032")] == ["offer0032"]


def test_streams_that_no_rule_matches_are_written_left_out_or_an_error() -> None:
    rule = {"from": "a"}
    assert [t.name for t in rules(rule).targets("b")] == ["b"]
    assert rules(rule, table_mapping_unmatched="ignore").targets("b") == ()
    with pytest.raises(ConfigError, match="No rule matches b"):
        rules(rule, table_mapping_unmatched="fail").targets("b")


def test_two_rules_that_give_a_stream_one_table_are_an_error() -> None:
    found = rules({"from": "a*", "to": "x"}, {"from": "*b", "to": "x"})
    assert len(found.targets("a")) == 1
    with pytest.raises(ConfigError, match=r"table.mapping\[0\] already maps ab to x") as told:
        found.targets("ab")
    assert told.value.field == "table.mapping[1].from"


@pytest.mark.parametrize(
    ("rule", "field", "problem", "fix"),
    [
        ({"from": "a", "form": "b"}, "[0].form", "Unknown key.", "Did you mean from?"),
        ({}, "[0].from", "Missing required key.", "Name the streams."),
        ({"from": []}, "[0].from", "Expected at least one name.", "Name one."),
        ({"from": "t[3-1]"}, "[0].from", "The range [3-1] in 't[3-1]' is descending.", "[1-3]"),
        ({"from": "a", "to": "${1}"}, "[0].to", "'a' captures nothing", "Use ${topic}"),
        ({"from": "a", "priority": "1"}, "[0].priority", "Expected an integer", "Smaller"),
        ({"from": "a", "where": "x >"}, "[0].where", "Expected a value after >.", "Write an"),
        (
            {"from": "a", "where": "(select 1) > 0"},
            "[0].where",
            "is not allowed in SQL of a record",
            "Use functions",
        ),
        ({"from": "a", "skip.ids": "1,[5-2]"}, "[0].skip.ids", "is descending", "[2-5]"),
        ({"from": "a", "skip.ids": "one"}, "[0].skip.ids", "Invalid ids", "1,2,[10-20]"),
        (
            {"from": "a", "columns": {"include": ["x"], "exclude": ["y"]}},
            "[0].columns.exclude",
            "include and exclude are both set.",
            "Set one of them.",
        ),
        (
            {"from": "a", "columns": {"renames": {"x": "y"}}},
            "[0].columns.renames",
            "Unknown key.",
            "Did you mean rename?",
        ),
        (
            {"from": "a", "columns": {"types": {"x": "NUMBER"}}},
            "[0].columns.types.x",
            "cannot be read",
            "Write columns as in",
        ),
        (
            {"from": "a", "columns": {"types": {"x": "INT, y INT"}}},
            "[0].columns.types.x",
            "more than one type",
            "Write one",
        ),
        (
            {"from": "a", "columns": {"rename": {"x": "y"}, "types": {"x": "INT"}}},
            "[0].columns.types.x",
            "the keys of types are column names",
            "Use its name in the table, y.",
        ),
        (
            {"from": "a", "columns": {"add": {"x": "1 +"}}},
            "[0].columns.add.x",
            "Expected a value after +.",
            "Write an",
        ),
        (
            {"from": "a", "columns": {"rename": {"x": "z"}, "add": {"z": "1"}}},
            "[0].columns",
            "Two columns would have the name z.",
            "another name",
        ),
        (
            {"from": "a", "columns": {"include": "x", "rename": {"y": "z"}}},
            "[0].columns.rename.y",
            "is renamed but not included",
            "Add y to include.",
        ),
        ("a", "[0]", "Expected a map.", "Write a rule"),
    ],
)
def test_what_is_wrong_in_a_rule_is_told_with_its_place(
    rule: Any, field: str, problem: str, fix: str
) -> None:
    [(found, said, mended)] = wrong(rule)
    assert found == f"table.mapping{field}"
    assert problem in said
    assert fix in str(mended)


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = wrong({"from": "["}, {"from": "a", "to": "${1}", "x": 1}, table_name_format="${2}")
    assert [field for field, _, _ in found] == [
        "table.name.format",
        "table.mapping[0].from",
        "table.mapping[1].x",
    ]


@pytest.mark.parametrize("text", ["{", "{}", '"a"', "3"])
def test_what_is_no_list_of_rules_says_how_to_write_one(text: str) -> None:
    [(field, _, fix)] = wrong(table_mapping=text)
    assert field == "table.mapping"
    assert "Write a list of rules" in str(fix)


def test_columns_are_left_out_renamed_and_typed_and_the_key_stays_right() -> None:
    found = select(
        {
            "columns": {
                "exclude": "note",
                "rename": {"id": "order_id"},
                "types": {"price": "DECIMAL(12, 2)"},
            }
        }
    )
    schema = found.schema(ORDERS)
    assert [(c.source, c.name, c.sql) for c in found.columns] == [
        ("id", "order_id", "value.`id`"),
        ("price", "price", "CAST(value.`price` AS DECIMAL(12, 2))"),
    ]
    assert schema == Schema.struct(
        {"order_id": Schema.int64(), "price": Schema.decimal(2, precision=12, optional=True)},
        parameters={PRIMARY_KEY: '["order_id"]'},
    )
    assert primary_key(schema) == found.key == ("order_id",)
    assert [refusal.field for refusal in found.refusals] == ["price"]
    assert found.renames is None


def test_what_is_only_renamed_can_be_copied_as_it_is() -> None:
    found = select({"columns": {"include": ["id", "note"], "rename": {"note": "text"}}})
    assert found.renames == {"id": "id", "text": "note"}
    assert not found.is_identity
    assert select({}).is_identity
    assert select({"columns": {"types": {"id": "BIGINT"}}}).is_identity
    assert select({"columns": {"add": {"x": "1"}}}).renames is None
    assert select({"where": "id > 1"}).renames is None


def test_the_key_must_not_be_left_out() -> None:
    with pytest.raises(ConfigError, match="id is part of the key") as told:
        select({"columns": {"include": ["note"]}})
    assert told.value.field == "table.mapping[0].columns"
    with pytest.raises(ConfigError, match="note is part of the key"):
        select({"columns": {"exclude": ["note"]}, "key.fields": ["note"]})
    other = select({"columns": {"exclude": ["id"]}, "key.fields": ["note"]})
    assert primary_key(other.schema(ORDERS)) == ("note",)


def test_fields_that_the_records_lack_are_left_out_until_none_is_left() -> None:
    columns = {"include": ["id", "price", "gone"], "types": {"gone": "INT"}}
    assert [c.name for c in select({"columns": columns}).columns] == ["id", "price"]
    plain = Schema.struct({"a": Schema.string()})
    with pytest.raises(ConfigError, match="would have no columns"):
        select({"columns": {"include": ["b"]}}, plain)


def test_two_fields_cannot_become_one_column() -> None:
    with pytest.raises(ConfigError, match="two columns note"):
        select({"columns": {"rename": {"price": "note"}}})


def test_a_value_without_fields_is_one_column() -> None:
    found = select({"columns": {"rename": {"value": "text"}}}, Schema.string())
    assert [(c.name, c.sql) for c in found.columns] == [("text", "value")]
    assert found.schema(Schema.string()) == Schema.struct({"text": Schema.string()})


def test_records_without_a_value_pass_a_condition_and_skipped_ids_do_not() -> None:
    value = ORDERS.replaced(optional=True)
    found = select({"where": "price > 1", "skip.ids": "1,2,[10-20]"}, value)
    assert found.condition == (
        "(value IS NULL OR coalesce(value.`price` > 1, false)) AND "
        "NOT coalesce(value.`id` IN (1, 2) OR value.`id` BETWEEN 10 AND 20, false)"
    )
    with_key = select({"skip.ids": 7}, value, key=Schema.struct({"id": Schema.int32()}))
    assert with_key.condition == "NOT coalesce(key.`id` IN (7), false)"


@pytest.mark.parametrize(
    ("rule", "schema"),
    [
        ({"key.fields": ["price"]}, ORDERS),
        ({"key.fields": ["id", "price"]}, ORDERS),
        ({}, Schema.struct({"id": Schema.int64()})),
        ({"key.fields": "id"}, Schema.struct({"id": Schema.date()})),
    ],
)
def test_ids_can_only_be_skipped_where_the_key_is_one_whole_number(
    rule: dict[str, Any], schema: Schema
) -> None:
    with pytest.raises(ConfigError, match="one integer field") as told:
        select({"skip.ids": "1", **rule}, schema)
    assert told.value.field == "table.mapping[0].skip.ids"


def test_the_name_of_a_field_in_another_place_of_the_frame_is_asked_for() -> None:
    found = select(
        {"columns": {"add": {"x": "id + 1"}}}, field_sql=lambda name: f"after.{name}"
    )
    assert [c.sql for c in found.columns][-1] == "(after.id + 1)"


def test_names_may_be_a_text_with_commas() -> None:
    found = select({"key.fields": "id, note", "columns": {"include": "id,note"}})
    assert [c.name for c in found.columns] == ["id", "note"]
    assert found.key == ("id", "note")
