"""Expressions over a record, with the SQL of each field in place of its name."""

import pytest

from headrace_plugins.transforms.sql import over_fields

FIELDS = {
    name: f"<{name}>"
    for name in ("a", "b", "date", "day", "end", "x", "My Field", "Big", "twice", "TWICE")
}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a + b", "<a> + <b>"),
        ("A + big", "<a> + <Big>"),
        ("twice || Twice", "<twice> || Twice"),
        ("`My Field` = 'a'", "<My Field> = 'a'"),
        ("a.b.a", "<a>.b.a"),
        ("a(b)", "a(<b>)"),
        ("CAST(a AS date)", "CAST(<a> AS date)"),
        ("CAST(a AS STRUCT<x: DATE, b: ARRAY<day>>) = x", None),
        ("named(CAST(a AS DECIMAL(10, 2)), b)", "named(CAST(<a> AS DECIMAL(10, 2)), <b>)"),
        ("struct(a AS b, b AS x)", "struct(<a> AS b, <b> AS x)"),
        ("date '2026-01-01' < date", "date '2026-01-01' < <date>"),
        ("a + INTERVAL 2 day", "<a> + INTERVAL 2 day"),
        ("extract(day FROM date) + day", "extract(day FROM <date>) + <day>"),
        ("timestampadd(day, 1, date)", "timestampadd(day, 1, <date>)"),
        ("CASE WHEN a THEN b END", "CASE WHEN <a> THEN <b> END"),
        ("CASE WHEN a THEN `end` END", "CASE WHEN <a> THEN <end> END"),
        ("transform(a, x -> x + b)", "transform(<a>, x -> x + <b>)"),
        ("aggregate(a, 0, (x, y) -> x + y)", "aggregate(<a>, 0, (x, y) -> x + y)"),
        ("a::date", "<a>::date"),
        ("a /* b */ -- b\n+ b", "<a> /* b */ -- b\n+ <b>"),
        ("1e3 + 2.5 + c", "1e3 + 2.5 + c"),
    ],
)
def test_names_of_fields_are_replaced_and_nothing_else(sql: str, expected: str | None) -> None:
    if expected is None:
        expected = "CAST(<a> AS STRUCT<x: DATE, b: ARRAY<day>>) = <x>"
    assert over_fields(sql, FIELDS) == expected


def test_the_rest_of_the_record_goes_by_record_as_long_as_no_field_does() -> None:
    assert over_fields("Record . topic || record.key", {"topic": "t"}) == "  topic || key"
    assert over_fields("record.topic", {"record": "r"}) == "r.topic"
