"""What is looked up and replaced in SQL is an expression, never a part of a text or a name."""

import pytest

from headrace.dataplane.records import Replacement, Sql

CALL = "try_cast(`a` AS INT)"


@pytest.mark.parametrize("sql", ["id", "`a``b`", "value.`a.b`.c"])
def test_a_column_and_a_field_are_columns(sql: str) -> None:
    assert Sql(sql).is_column


@pytest.mark.parametrize("sql", ["'id'", "a + 1", "f(a)", "`a` `b`", "a.", ""])
def test_all_else_is_none(sql: str) -> None:
    assert not Sql(sql).is_column


def test_names_are_found_outside_of_texts_and_comments() -> None:
    sql = Sql("""concat(`A``b`, 'it\\'s x', "y", r'\\', user.z) -- w\n /* v */""")
    assert sql.references == {"concat", "a`b", "user", "z"}


@pytest.mark.parametrize(
    ("sql", "replaced"),
    [
        (f"IF({CALL} IS NULL, 1, {CALL})", "IF(c IS NULL, 1, c)"),
        (f"concat('{CALL}', {CALL})", f"concat('{CALL}', c)"),
        (f"concat('\\'{CALL}', \"{CALL}\")", f"concat('\\'{CALL}', \"{CALL}\")"),
        (f"my_{CALL} + {CALL}", f"my_{CALL} + c"),
        (f"/* {CALL} */ {CALL}", f"/* {CALL} */ c"),
        (f"{CALL}.`{CALL.replace('`', '``')}`", f"c.`{CALL.replace('`', '``')}`"),
    ],
)
def test_an_expression_is_replaced_where_it_stands_as_a_whole(sql: str, replaced: str) -> None:
    assert Replacement({CALL: "c"}).over(sql) == replaced


def test_of_an_expression_and_a_part_of_it_the_whole_is_replaced() -> None:
    whole = f"upper({CALL})"
    assert Replacement({CALL: "c", whole: "u"}).over(f"{whole} = {CALL}") == "u = c"
