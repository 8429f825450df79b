"""Which converters a definition names, and what is said about wrong ones."""

from collections.abc import Mapping

import pytest

from headrace.control import check_definition
from headrace.control.definition_forms import from_kafka
from headrace.control.validation import plan_converters
from headrace.model import Definition, PluginSpec
from headrace.plugins import Registry
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.converter import RecordPart
from headrace_plugins.converters.json_converter import JsonConverter
from headrace_plugins.converters.scalars import SimpleHeaderConverter, StringConverter

KAFKA = {
    "name": "copy",
    "connector.class": "console",
    "topics": "t",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def sink(**common: str) -> Definition:
    keys = {key.replace("_", "."): value for key, value in common.items()}
    return Definition("copy", None, (PluginSpec("console"),), ("t",), (), keys)


def planned(definition: Definition) -> Mapping[RecordPart, object]:
    return {plan.part: plan for plan in plan_converters(definition, Registry())}


def test_kafka_connects_form_names_converters_by_their_classes() -> None:
    definition = from_kafka(KAFKA, lambda _: False)
    key, value, header = plan_converters(definition, Registry())
    assert (key.part, key.plugin) == (RecordPart.KEY, StringConverter)
    assert (value.part, value.plugin) == (RecordPart.VALUE, JsonConverter)
    assert value.config["schemas.enable"] is False
    assert value.config["converter.type"] == "value"
    assert not check_definition(definition, Registry()).errors

    assert (header.part, header.plugin) == (RecordPart.HEADER, SimpleHeaderConverter)


def test_without_a_converter_there_is_none() -> None:
    assert not planned(sink())


def test_headers_are_converted_by_the_default_only_where_nothing_else_is_set() -> None:
    plans = plan_converters(sink(header_converter="StringConverter"), Registry())
    assert [plan.plugin for plan in plans] == [StringConverter]


@pytest.mark.parametrize(
    ("common", "field"),
    [
        ({"value_converter": "Nope"}, "value.converter"),
        ({"header_converter": "LongConverter"}, "header.converter"),
        (
            {"value_converter": "JsonConverter", "value_converter_decimal_format": "HEX"},
            "value.converter.decimal.format",
        ),
        (
            {"value_converter": "JsonConverter", "value_converter_schema_content": "{"},
            "value.converter.schema.content",
        ),
        (
            {"value_converter": "JsonConverter", "value_converter_schemas_enabled": "true"},
            "value.converter.schemas.enabled",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(common: dict[str, str], field: str) -> None:
    found = check_definition(sink(**common), Registry())
    assert [error.field for error in found.errors] == [field]


def test_a_wrong_converter_stops_the_planning_too() -> None:
    wrong = {"key_converter": "StringConverter", "key_converter_converter_encoding": "x"}
    with pytest.raises((ConfigError, ConfigErrors)):
        plan_converters(sink(**wrong), Registry())
