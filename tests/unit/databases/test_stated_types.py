"""What a record's schema says of a column's type is never SQL of whoever wrote the record."""

import pytest

from headrace.sdk import Schema
from headrace.sdk.schema import COLUMN_TYPE
from headrace_plugins.databases.catalog import stated_type


@pytest.mark.parametrize(
    "type_",
    [
        "integer",
        "numeric(10,2)",
        "timestamp(3) with time zone",
        "character varying(5)[]",
        '"My Schema"."mood"',
        "int(10) unsigned zerofill",
        "enum('a','it''s')",
        "varchar(20) COLLATE utf8mb4_bin",
        "enum('x COLLATE y','z')",
        "",
    ],
)
def test_types_are_taken_as_they_are(type_: str) -> None:
    schema = Schema.string().replaced(parameters={COLUMN_TYPE: f"mysql {type_}"})
    assert stated_type(schema) == ("mysql", type_)


@pytest.mark.parametrize(
    "type_",
    [
        "integer); DROP TABLE payroll; CREATE TABLE x (a int",
        "integer, b text",
        "integer) AS SELECT s FROM secrets #",
        "enum('a\\', 'b) AS SELECT s FROM secrets #')",
        "integer DEFAULT nextval('s')",
        "integer -- ",
        'integer "open',
    ],
)
def test_what_is_no_type_is_passed_over(type_: str) -> None:
    schema = Schema.string().replaced(parameters={COLUMN_TYPE: f"postgresql {type_}"})
    assert stated_type(schema) == ("", "")


def test_a_long_text_that_is_no_type_is_refused_at_once() -> None:
    for type_ in ("a" * 100_000 + ";", "a " * 50_000 + ";", "(" + "a," * 50_000, "''" * 50_000):
        schema = Schema.string().replaced(parameters={COLUMN_TYPE: f"mysql {type_}"})
        assert stated_type(schema) == ("", "")
