"""RocketMQ Connect's own transforms on real Spark, with its results."""

from decimal import Decimal
from typing import Any

import pytest
from tests.integration.transforms.tried import Try, tried, values

from headrace.sdk import ConfigErrors, Schema, Struct
from headrace_plugins.transforms.rocketmq import (
    ChangeCase,
    ExtractNestedField,
    PatternFilter,
    PatternRename,
    SetMaximumPrecision,
    SetNull,
)

pytestmark = pytest.mark.spark

ADDRESS = Schema.struct(
    {"state": Schema.string(), "city": Schema.string(optional=True)}, optional=True
)
PERSON = Schema.struct({"name": Schema.string(), "address": ADDRESS}, optional=True)
TEXTS = Schema.map(Schema.string(), Schema.string(optional=True))
V2 = {"field_syntax_version": "V2"}
UNSUPPORTED = "java.lang.UnsupportedOperationException"


def person(name: str = "Ann", state: str | None = "TX") -> Struct:
    address = None if state is None else {"state": state, "city": None}
    return Struct.of(PERSON, {"name": name, "address": address})


def record(kind: Any, value: Any, schema: Schema | None, **config: str) -> Try:
    return Try(
        kind, {key.replace("_", "."): text for key, text in config.items()}, value, schema
    )


# From, to, name, name after: by Guava's CaseFormat.
CASES = [
    ("LOWER_UNDERSCORE", "UPPER_CAMEL", "first_name", "FirstName"),
    ("LOWER_UNDERSCORE", "LOWER_CAMEL", "first_name", "firstName"),
    ("LOWER_UNDERSCORE", "LOWER_HYPHEN", "First_name", "First-name"),
    ("LOWER_UNDERSCORE", "UPPER_UNDERSCORE", "first_name", "FIRST_NAME"),
    ("UPPER_UNDERSCORE", "LOWER_HYPHEN", "FIRST_NAME", "first-name"),
    ("LOWER_HYPHEN", "UPPER_CAMEL", "-first-name", "FirstName"),
    ("UPPER_CAMEL", "LOWER_UNDERSCORE", "FirstName", "first_name"),
    ("LOWER_CAMEL", "LOWER_UNDERSCORE", "aBC", "a_b_c"),
    ("LOWER_CAMEL", "UPPER_UNDERSCORE", "Name", "NAME"),
    ("LOWER_CAMEL", "UPPER_CAMEL", "ärger", "ärger"),
    ("LOWER_CAMEL", "LOWER_CAMEL", "ANY_Name", "ANY_Name"),
]


def test_names_change_their_case_as_in_guava(spark) -> None:
    tries = [
        Try(
            ChangeCase,
            {"from": old, "to": new},
            Struct.of(schema := Schema.struct({name: Schema.int32()}), {name: 1}),
            schema,
        )
        for old, new, name, _ in CASES
    ]
    assert values(spark, *tries) == [{after: 1} for *_, after in CASES]


def test_what_rocketmq_does_to_fields(spark) -> None:
    address = {"input_outer_field_name": "address", "input_inner_field_name": "state"}
    rename = {"field_pattern": "^(n)|s$", "field_replacement": "_$1"}
    found = values(
        spark,
        record(ExtractNestedField, person(), PERSON, **address),
        record(ExtractNestedField, person(state=None), PERSON, **address),
        record(ExtractNestedField, person(), PERSON, **address, output_field_name="home"),
        record(ExtractNestedField, person(), PERSON, **address, output_field_name="name"),
        record(ExtractNestedField, None, PERSON, **address),
        record(PatternRename, person(), PERSON, **rename),
        record(PatternRename, person(), PERSON, field_pattern=".*", field_replacement="x"),
        record(
            PatternRename,
            person(),
            PERSON,
            field_pattern="A",
            field_pattern_flags="CASE_INSENSITIVE",
            field_replacement="e",
        ),
        record(PatternRename, "text", Schema.string(), **rename),
    )
    ann = {"name": "Ann", "address": {"state": "TX", "city": None}}
    assert found == [
        ann | {"state": "TX"},
        {"name": "Ann", "address": None, "state": None},
        ann | {"home": "TX"},
        "Cannot create field because of field name duplication name",
        None,
        {"_name": "Ann", "addres_": ann["address"]},
        "Cannot create field because of field name duplication xx",
        {"neme": "Ann", "eddress": ann["address"]},
        "STRING is not a supported type.",
    ]


def test_a_pattern_drops_records_whose_text_it_matches_as_a_whole(spark) -> None:
    config = {"pattern": "A.*", "fields": "name,other"}
    found = tried(
        spark,
        record(PatternFilter, person("Ann"), PERSON, **config),
        record(PatternFilter, person("Bo Ann"), PERSON, **config),
        record(PatternFilter, None, PERSON, **config),
        record(PatternFilter, person("Ann"), PERSON, pattern="A.*"),
        record(PatternFilter, "Ann", Schema.string(), **config),
        record(PatternFilter, {"other": "A"}, TEXTS, **config),
        record(PatternFilter, {"more": "A", "name": None}, TEXTS, **config),
        *(
            record(PatternFilter, one, PERSON, pattern="T.", fields="`address`.state", **V2)
            for one in (person(), person(state="NY"), person(state=None))
        ),
    )
    dropped = [one["dropped"] == "it" for one in found]
    assert dropped == [True, False, False, False, False, True, False, True, False, False]


def test_nested_fields_are_reached_at_any_depth(spark) -> None:
    outer = Schema.struct({"a.b": PERSON}, optional=True)
    names = {"input_outer_field_name": "`a.b`.address", "input_inner_field_name": "state"}
    one = Struct.of(outer, {"a.b": {"name": "Ann", "address": {"state": "TX", "city": None}}})
    [found] = values(
        spark,
        record(ExtractNestedField, one, outer, **names, output_field_name="`a.b`.home", **V2),
    )
    assert found["a.b"]["home"] == "TX"


def test_decimals_are_limited_and_those_that_do_not_fit_rejected(spark) -> None:
    row = Schema.struct({"n": Schema.decimal(2), "m": Schema.decimal(2, precision=4)})

    def limited(most: str, number: str) -> Try:
        value = Struct.of(row, {"n": Decimal(number), "m": Decimal("1.25")})
        return record(SetMaximumPrecision, value, row, precision_max=most)

    tries = [limited("5", "123.45"), limited("5", "1234.56"), limited("1", "1.00")]
    assert values(spark, *tries) == [
        {"n": 123.45, "m": 1.25},
        "The number 1234.56 has too many digits",
        "A decimal with 2 digits after the point does not fit a precision of 1",
    ]
    after = tries[0].after().value.schema
    assert after is not None
    parameters = [dict(field.schema.parameters) for field in after.fields]
    assert [p["connect.decimal.precision"] for p in parameters] == ["5", "4"]


def test_keys_and_values_are_made_null(spark) -> None:
    found = tried(
        spark,
        record(SetNull, person(), PERSON),
        record(SetNull, 1, Schema.int32()),
        Try(SetNull, {}, 1, of_key=True),
    )
    assert [(one["key"], one["value"]) for one in found] == [(None, None)] * 3


def test_values_without_fields_are_rejected_as_unsupported(spark) -> None:
    cases = {"from": "LOWER_CAMEL", "to": "UPPER_CAMEL"}
    found = tried(
        spark,
        record(ChangeCase, 1, Schema.int64(), **cases),
        record(SetMaximumPrecision, None, Schema.timestamp(optional=True), precision_max="5"),
        record(SetMaximumPrecision, Decimal("1.0"), Schema.decimal(1), precision_max="5"),
    )
    assert [one["error"] and one["error"]["message"] for one in found] == [
        "INT64 is not a supported type.",
        None,
        "Decimal is not a supported type.",
    ]
    assert found[0]["error"]["exception"] == UNSUPPORTED


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        (ChangeCase, {"from": "x", "to": "LOWER_CAMEL"}, "String must be one of"),
        (PatternFilter, {"pattern": "("}, "Invalid regex"),
        (PatternRename, {"field.pattern": r"\p{L}", "field.replacement": ""}, "RE2 does not"),
        (PatternRename, {"field.pattern": "a", "field.replacement": "$1"}, "No group 1"),
        (SetMaximumPrecision, {"precision.max": "0"}, "Value must be at least 1"),
    ],
)
def test_wrong_keys_are_refused(kind, config: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        kind.config_def().parse(config)
