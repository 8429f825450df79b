"""Schemas go to Spark's types and back without loss."""

from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.sdk.strategies import ROWS

from headrace.sdk.arrow import to_arrow
from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Schema
from headrace.sdk.sparktypes import from_spark_json, parse_ddl, to_spark_json
from headrace.sdk.sqltext import sql_type


def row(spark_type: Any, **field: Any) -> dict[str, Any]:
    column = {"name": "c", "type": spark_type, "nullable": False, "metadata": {}, **field}
    return {"type": "struct", "fields": [column]}


def column(schema: Schema) -> Any:
    return to_spark_json(Schema.struct({"c": schema}))["fields"][0]


@given(ROWS)
def test_rows_come_back_from_spark_as_they_were(schema: Schema) -> None:
    assert from_spark_json(to_spark_json(schema)) == schema


@pytest.mark.parametrize(
    ("schema", "spark_type"),
    [
        (Schema.int8(), "byte"),
        (Schema.int16(), "short"),
        (Schema.int32(), "integer"),
        (Schema.int64(), "long"),
        (Schema.float32(), "float"),
        (Schema.float64(), "double"),
        (Schema.boolean(), "boolean"),
        (Schema.string(), "string"),
        (Schema.bytes(), "binary"),
        (Schema.decimal(2, precision=9), "decimal(9,2)"),
        (Schema.date(), "date"),
        (Schema.timestamp(), "timestamp"),
        (Schema.time(), "long"),
        (
            Schema.array(Schema.int8(optional=True)),
            {"type": "array", "elementType": "byte", "containsNull": True},
        ),
        (
            Schema.map(Schema.string(), Schema.int8()),
            {
                "type": "map",
                "keyType": "string",
                "valueType": "byte",
                "valueContainsNull": False,
            },
        ),
    ],
)
def test_types_have_sparks_names(schema: Schema, spark_type: Any) -> None:
    assert column(schema)["type"] == spark_type


@pytest.mark.parametrize(
    ("spark_type", "schema"),
    [
        ("varchar(10)", Schema.string()),
        ("char(3)", Schema.string()),
        ("string collate UTF8_LCASE", Schema.string()),
        ("timestamp_ntz", Schema.local_timestamp()),
        ("time(6)", Schema.time()),
        ("void", Schema.string(optional=True)),
        ("decimal(10, 2)", Schema.decimal(2, precision=10)),
    ],
)
def test_spark_types_with_a_clear_meaning_are_taken(spark_type: str, schema: Schema) -> None:
    assert from_spark_json(row(spark_type)) == Schema.struct({"c": schema})


@pytest.mark.parametrize(
    "spark_type",
    [
        "interval day to second",
        "geometry(4326)",
        "nonsense",
        {"type": "udt", "class": "x"},
    ],
)
def test_other_spark_types_are_refused_by_path(spark_type: Any) -> None:
    nested = {"type": "array", "elementType": spark_type, "containsNull": True}
    with pytest.raises(ConfigError) as caught:
        from_spark_json(row(nested))
    assert caught.value.field == "c element"


def test_a_description_is_the_comment_that_spark_shows() -> None:
    assert column(Schema.int8(doc="how many"))["metadata"] == {"comment": "how many"}
    read = from_spark_json(row("byte", metadata={"comment": "how many"}))
    assert read == Schema.struct({"c": Schema.int8(doc="how many")})


def test_metadata_of_others_is_left_alone() -> None:
    read = from_spark_json(row("byte", metadata={"delta.columnMapping.id": 1, "x": {"y": []}}))
    assert read == Schema.struct({"c": Schema.int8()})


def test_an_empty_struct_cannot_carry_a_name() -> None:
    assert from_spark_json(to_spark_json(Schema.struct())) == Schema.struct()
    with pytest.raises(ConfigError):
        to_spark_json(Schema.struct(name="n"))


def test_sql_types_are_nullable_and_may_have_variants_as_texts() -> None:
    schema = Schema.struct(
        {
            "a`b": Schema.int32(doc="it's"),
            "d": Schema.decimal(2, precision=9, optional=True),
            "l": Schema.array(Schema.variant(), optional=True),
            "m": Schema.map(Schema.string(), Schema.timestamp(), optional=True),
        }
    )
    assert sql_type(schema, variant="STRING") == (
        "STRUCT<`a``b`: INT, `d`: DECIMAL(9, 2), `l`: ARRAY<STRING>, "
        "`m`: MAP<STRING, TIMESTAMP>>"
    )
    assert sql_type(Schema.variant()) == "VARIANT"


@pytest.mark.spark
@settings(deadline=None)
@given(ROWS)
def test_spark_itself_takes_and_gives_back_the_json(schema: Schema) -> None:
    from pyspark.sql.types import StructType

    json = to_spark_json(schema)
    assert StructType.fromJson(json).jsonValue() == json


@pytest.mark.spark
@settings(deadline=None)
@given(ROWS)
def test_arrow_and_spark_types_agree_as_spark_sees_it(schema: Schema) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    spark = StructType.fromJson(to_spark_json(schema))
    assert to_arrow_schema(spark, timezone="UTC").equals(to_arrow(schema))


@pytest.mark.parametrize("size", ["50, 2", "0", "5, 6"])
def test_a_decimal_that_is_too_large_is_refused_with_its_key(size: str) -> None:
    with pytest.raises(ConfigError, match="a precision from 1 to 38") as failed:
        parse_ddl(f"a DECIMAL({size})", field="schema")
    assert failed.value.field == "schema"


def test_a_type_that_is_nested_too_deeply_is_refused() -> None:
    text = "a STRUCT<" * 3000 + "a INT" + ">" * 3000
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_ddl(text, field="schema")
