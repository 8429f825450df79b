"""Validators take and refuse values, and tell which are valid, in Kafka's words."""

from typing import Any

import pytest

from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Lambda,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    NullOr,
    Range,
    Regex,
    Validator,
    ValidList,
    ValidString,
    invalid,
)
from headrace.sdk.errors import ConfigError


@pytest.mark.parametrize(
    ("validator", "text"),
    [
        (Range(at_least=1), "[1,...]"),
        (Range(at_most=2), "[...,2]"),
        (Range(0, 10), "[0,...,10]"),
        (ValidString("a", "b"), "[a, b]"),
        (ValidString("a", "B", any_case=True), "(case insensitive) [A, B]"),
        (ValidList("a"), "[a]"),
        (NonNull(), "non-null string"),
        (NonEmptyString(), "non-empty string"),
        (
            NonEmptyStringWithoutControlChars(),
            "non-empty string without ISO control characters",
        ),
        (Regex(), "valid regex"),
        (NullOr(Range(at_least=1)), "[1,...]"),
    ],
)
def test_a_validator_tells_what_is_valid(validator: Validator, text: str) -> None:
    assert str(validator) == text


@pytest.mark.parametrize(
    ("validator", "value", "reason"),
    [
        (
            ValidString("a", "b"),
            "c",
            "Invalid value c for configuration k: String must be one of: a, b",
        ),
        (ValidString("a"), None, "Invalid value null for configuration k"),
        (ValidString("a", any_case=True), "c", "String must be one of (case insensitive): A"),
        (ValidString("a", any_case=True), None, "Invalid value null"),
        (ValidList("a"), ["a", "c"], "Invalid value c for configuration k"),
        (ValidList(), None, "values must not be null"),
        (ValidList(allow_empty=False), [], "must not be empty"),
        (ValidList(unique=True), ["a", "a"], "values must not be duplicated"),
        (ValidList(), [""], "values must not be empty"),
        (NonNull(), None, "Invalid value null for configuration k: entry must be non null"),
        (NonEmptyString(), "", "String must be non-empty"),
        (NonEmptyStringWithoutControlChars(), "", "String may not be empty"),
        (NonEmptyStringWithoutControlChars(), "a\tb", "following ASCII chars: 9"),
        (Regex(), "[", "Invalid value [ for configuration k: Invalid regex: "),
        (Regex(), "(?<n>a", "Invalid regex"),
        (Regex(), "a{99999999999}", "Invalid regex"),
        (Regex(), "(" * 5000 + ")" * 5000, "Invalid regex"),
    ],
)
def test_a_validator_refuses_what_is_not_valid(
    validator: Validator, value: Any, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validator.check("k", value)
    assert reason in caught.value.problem
    assert caught.value.fix


@pytest.mark.parametrize(
    ("validator", "value"),
    [
        (ValidString("requested", any_case=True), "Requested"),
        (NonEmptyString(), None),
        (NonEmptyStringWithoutControlChars(), "a b"),
        (NullOr(Range(at_least=1)), None),
        (Regex(), "(?<year>\\d{4})-\\k<year>"),
        (Regex(), "\\p{Lu}+(?i)x"),
        (Regex(), "[a-z&&[^aeiou]]+"),
        (Regex(), "\\Q[\\E.*"),
        (Regex(), "a++(?>b)"),
        (Regex(), None),
    ],
)
def test_a_validator_takes_what_is_valid(validator: Validator, value: Any) -> None:
    validator.check("k", value)


def test_a_check_of_ones_own_is_a_lambda() -> None:
    def even(name: str, value: object) -> None:
        if not isinstance(value, int) or value % 2:
            raise invalid(name, value, "Not even", fix="Add one.")

    validator = Lambda(even, "even numbers")
    definition = ConfigDef().define("k", ConfigType.INT, doc="d", validator=validator)
    (wrong,) = definition.validate({"k": "3"})
    assert wrong.error_messages == ("Invalid value 3 for configuration k: Not even",)
    assert definition.parse({"k": "4"})["k"] == 4
