"""Configuration is parsed and validated as Kafka's ConfigDef does it."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headrace.sdk.config import (
    Config,
    ConfigDef,
    ConfigType,
    Importance,
    Password,
    Range,
    Regex,
    Width,
)
from headrace.sdk.errors import ConfigError, ConfigErrors


def define(kind: ConfigType, **parts: Any) -> ConfigDef:
    return ConfigDef().define("k", kind, doc="A key.", **parts)


def parsed(kind: ConfigType, value: Any) -> Any:
    return define(kind).parse({"k": value})["k"]


def messages(definition: ConfigDef, props: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {v.name: v.error_messages for v in definition.validate(props) if v.errors}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, False, False),
        (ConfigType.STRING, "  a b\t", "a b"),
        (ConfigType.STRING, "\u00a0a", "\u00a0a"),
        (ConfigType.INT, " +12 ", 12),
        (ConfigType.INT, -(2**31), -(2**31)),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1.5e3", 1500.0),
        (ConfigType.DOUBLE, "2f", 2.0),
        (ConfigType.DOUBLE, 3, 3.0),
        (ConfigType.LIST, " a , b,,c ", ("a", "b", "", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.LIST, ["a"], ("a",)),
        (ConfigType.CLASS, "a.B", "a.B"),
        (ConfigType.CLASS, ConfigDef, "headrace.sdk.config.definition.ConfigDef"),
        (ConfigType.PASSWORD, " s3cret ", Password("s3cret")),
        (ConfigType.INT, None, None),
    ],
)
def test_values_are_parsed_by_type(kind: ConfigType, text: Any, value: Any) -> None:
    assert parsed(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "yes for configuration k: Expected value to be either"),
        (ConfigType.STRING, 1, "1 for configuration k: Expected value to be a string, but"),
        (ConfigType.INT, "abc", "abc for configuration k: Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, True, "true for configuration k: Expected value to be a 32-bit"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "1.0", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "inf", "Not a number of type DOUBLE"),
        (ConfigType.LIST, 1, "Expected a comma separated list."),
        (ConfigType.PASSWORD, 12345, "[hidden] for configuration k"),
    ],
)
def test_a_value_of_another_type_is_refused_in_kafkas_words(
    kind: ConfigType, text: Any, reason: str
) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parsed(kind, text)
    error = caught.value.errors[0]
    assert reason in error.problem
    assert error.problem.startswith("Invalid value ")
    assert error.field == "k"
    assert error.fix


def test_all_errors_are_raised_at_once() -> None:
    definition = define(ConfigType.INT).define("l", ConfigType.STRING, doc="d")
    with pytest.raises(ConfigErrors) as caught:
        definition.parse({"k": "x"})
    assert [error.problem for error in caught.value.errors] == [
        "Invalid value x for configuration k: Not a number of type INT",
        'Missing required configuration "l" which has no default value.',
    ]


def test_a_missing_key_takes_its_default_which_may_be_null() -> None:
    definition = define(ConfigType.INT, default=" 7 ").define(
        "l", ConfigType.LIST, None, doc="d"
    )
    config = definition.parse({})
    assert config["k"] == 7
    assert config["l"] is None


def test_a_default_must_be_valid_itself() -> None:
    with pytest.raises(ConfigError):
        define(ConfigType.INT, default="x")
    with pytest.raises(ConfigError):
        define(ConfigType.INT, default=0, validator=Range(at_least=1))


def test_a_key_is_defined_once() -> None:
    with pytest.raises(ConfigError, match="k is defined twice"):
        define(ConfigType.INT).define("k", ConfigType.INT, doc="d")


def test_defining_gives_a_new_definition() -> None:
    first = define(ConfigType.INT)
    first.define("l", ConfigType.INT, doc="d")
    assert list(first.keys) == ["k"]


def test_a_value_that_cannot_be_parsed_is_also_checked_as_null() -> None:
    definition = define(ConfigType.INT, validator=Range(at_least=1))
    assert messages(definition, {"k": "abc"}) == {
        "k": (
            "Invalid value abc for configuration k: Not a number of type INT",
            "Invalid value null for configuration k: Value must be non-null",
        )
    }


def test_each_value_of_the_range_is_valid_and_no_other() -> None:
    definition = define(ConfigType.INT, validator=Range(1, 10))
    for valid in ("1", "10"):
        assert messages(definition, {"k": valid}) == {}
    assert "Value must be at least 1" in messages(definition, {"k": "0"})["k"][0]
    assert "Value must be no more than 10" in messages(definition, {"k": "11"})["k"][0]


def test_embedded_keys_get_prefix_group_and_places() -> None:
    child = (
        ConfigDef()
        .define("late", ConfigType.INT, 1, doc="d", importance=Importance.LOW)
        .define("pattern", ConfigType.STRING, doc="d", validator=Regex())
        .define("grouped", ConfigType.INT, 1, doc="d", group="More")
    )
    outer = define(ConfigType.INT).embed("transforms.a.", "Transforms: a", 5, child)
    places = {key.name: (key.group, key.order) for key in outer.keys.values()}
    assert places == {
        "k": (None, -1),
        "transforms.a.pattern": ("Transforms: a", 5),
        "transforms.a.late": ("Transforms: a", 6),
        "transforms.a.grouped": ("Transforms: a: More", 7),
    }


def test_messages_of_embedded_validators_name_the_key_without_prefix() -> None:
    child = ConfigDef().define("pattern", ConfigType.STRING, doc="d", validator=Regex())
    value = (
        ConfigDef()
        .embed("transforms.a.", "T", 1, child)
        .validate({"transforms.a.pattern": "["})[0]
    )
    assert value.name == "transforms.a.pattern"
    assert value.error_messages[0].startswith("Invalid value [ for configuration pattern: ")
    assert value.errors[0].field == "transforms.a.pattern"


def test_a_rule_checks_several_keys_also_where_it_is_embedded() -> None:
    def ordered(props: Mapping[str, Any]) -> list[ConfigError]:
        fits = int(props.get("low", 0)) <= int(props.get("high", 9))
        return [] if fits else [ConfigError(problem="low is above high.", field="low")]

    child = (
        ConfigDef()
        .define("low", ConfigType.INT, 0, doc="d")
        .define("high", ConfigType.INT, 9, doc="d")
    )
    child = replace(child, rules=(ordered,))
    outer = ConfigDef().embed("p.", "P", 1, child)
    assert messages(child, {"low": "10"}) == {"low": ("low is above high.",)}
    assert messages(outer, {"p.low": "10"}) == {"p.low": ("low is above high.",)}
    with pytest.raises(ConfigErrors):
        outer.parse({"p.low": "10"})
    assert outer.parse({"p.low": "3"})["p.low"] == 3


def test_merging_keeps_the_own_key_and_adds_the_others() -> None:
    own = define(ConfigType.INT, default=1)
    other = (
        ConfigDef().define("k", ConfigType.STRING, doc="x").define("l", ConfigType.INT, doc="x")
    )
    merged = own.merged(other)
    assert list(merged.keys) == ["k", "l"]
    assert merged.keys["k"].type is ConfigType.INT


def test_unknown_keys_are_told_with_a_close_match() -> None:
    definition = ConfigDef().define("batch.max.rows", ConfigType.LONG, doc="d")
    props = {"batch.max.row": "1", "zzz": "1", "transforms.a.type": "x", "batch.max.rows": "1"}
    assert definition.unknown(props, prefixes=["transforms."]) == [
        ("batch.max.row", "batch.max.rows"),
        ("zzz", None),
    ]
    assert len(definition.unknown(props)) == 3


def test_an_unknown_key_is_not_told_to_be_the_one_that_it_begins_with() -> None:
    definition = ConfigDef().define("predicates", ConfigType.LIST, "", doc="d")
    assert definition.unknown({"predicates.even.type": "x"}) == [("predicates.even.type", None)]


def test_the_answer_to_validation_has_kafkas_form() -> None:
    definition = ConfigDef().define(
        "tasks.max",
        ConfigType.INT,
        1,
        validator=Range(at_least=1),
        importance=Importance.HIGH,
        doc="How many.",
        group="Common",
        order=4,
        width=Width.SHORT,
        display_name="Tasks max",
    )
    answer = definition.infos("X", {"tasks.max": "abc", "other": "1"}).to_kafka_json()
    where = "for configuration tasks.max:"
    assert answer == {
        "name": "X",
        "error_count": 2,
        "groups": ["Common"],
        "configs": [
            {
                "definition": {
                    "name": "tasks.max",
                    "type": "INT",
                    "required": False,
                    "default_value": "1",
                    "importance": "HIGH",
                    "documentation": "How many.",
                    "group": "Common",
                    "order": 4,
                    "order_in_group": 4,
                    "width": "SHORT",
                    "display_name": "Tasks max",
                    "dependents": [],
                },
                "value": {
                    "name": "tasks.max",
                    "value": None,
                    "recommended_values": [],
                    "errors": [
                        f"Invalid value abc {where} Not a number of type INT",
                        f"Invalid value null {where} Value must be non-null",
                    ],
                    "visible": True,
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (ConfigType.LIST, "a, b", "a,b"),
        (ConfigType.LIST, "", ""),
        (ConfigType.BOOLEAN, "TRUE", "true"),
        (ConfigType.PASSWORD, "s3cret", "[hidden]"),
        (ConfigType.DOUBLE, "1", "1.0"),
        (ConfigType.DOUBLE, "1e10", "1.0E10"),
        (ConfigType.DOUBLE, "1.25e-5", "1.25E-5"),
        (ConfigType.DOUBLE, "-12345678", "-1.2345678E7"),
        (ConfigType.STRING, None, None),
    ],
)
def test_defaults_and_values_show_as_texts(kind: ConfigType, default: Any, text: Any) -> None:
    shown = define(kind, default=default).infos("X", {}).to_kafka_json()["configs"][0]
    assert shown["definition"]["default_value"] == text
    assert shown["value"]["value"] == text


def test_a_key_without_group_or_display_name_shows_kafkas_defaults() -> None:
    shown = define(ConfigType.INT).keys["k"].to_kafka_json()
    assert (shown["group"], shown["order"], shown["display_name"]) == (None, -1, "k")
    assert (shown["required"], shown["default_value"], shown["width"]) == (True, None, "NONE")


def test_a_password_shows_nowhere() -> None:
    definition = define(ConfigType.PASSWORD)
    config = definition.parse({"k": "s3cret"})
    infos = definition.infos("X", {"k": "s3cret"})
    shown = [repr(config), str(config["k"]), f"{config['k']!r}", str(infos.to_kafka_json())]
    shown.append(repr(infos))
    assert not any("s3cret" in text for text in shown)
    assert config["k"].value == "s3cret"


def test_typed_getters_give_values_or_say_what_is_missing() -> None:
    definition = (
        define(ConfigType.STRING, default=None)
        .define("n", ConfigType.LONG, 5, doc="d")
        .define("b", ConfigType.BOOLEAN, "true", doc="d")
        .define("d", ConfigType.DOUBLE, "0.5", doc="d")
    )
    config = definition.parse({})
    assert (config["n"], config["b"], config["d"]) == (5, True, 0.5)
    assert config.find_str("k") is None
    with pytest.raises(ConfigError) as caught:
        config.get_str("k")
    assert caught.value.field == "k"
    with pytest.raises(KeyError):
        config.get_str("zz")
    with pytest.raises(TypeError):
        config.get_str("n")


def test_a_config_keeps_the_original_texts_and_never_changes() -> None:
    config = define(ConfigType.LIST).parse({"k": " a , b ", "x.y": 1, "x.z": None})
    assert config.originals == {"k": " a , b ", "x.y": "1"}
    assert config["k"] == ("a", "b")
    with pytest.raises(AttributeError):
        config._values = {}  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes
    assert isinstance(config, Config)
