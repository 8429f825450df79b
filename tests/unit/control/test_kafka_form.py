"""What is read of Kafka Connect's form of a definition."""

from datetime import timedelta

import pytest

from headrace.control.connector_settings import parse_common, sink_def, source_def
from headrace.control.definition_forms import from_kafka


@pytest.mark.parametrize("source", [True, False])
def test_every_key_of_the_runtime_is_read(source: bool) -> None:
    keys = dict.fromkeys((source_def() if source else sink_def()).keys, "1")
    config = {**keys, "transforms": "", "predicates": "", "connector.class": "x"}
    definition = from_kafka({"name": "c", "config": config}, lambda _: source)
    assert definition.common.keys() == keys.keys()
    [own] = (definition.source,) if definition.source else definition.sinks
    assert own is not None
    assert own.config.keys() == {"connector.class"} | ({"topic"} & own.config.keys())


def test_restarts_limits_and_the_start_of_a_sink_are_as_the_connector_says() -> None:
    config = {
        "connector.class": "x",
        "topics": "t",
        "topics.start": "latest",
        "errors.tolerance.max.count": "7",
        "errors.restart.enable": "true",
        "errors.restart.delay.ms": "250",
    }
    common = parse_common(from_kafka({"name": "c", "config": config}, lambda _: False))
    assert common.topics_start == "latest"
    assert common.errors.limits.are_set
    assert common.restarts.enabled is True
    assert common.restarts.first == timedelta(milliseconds=250)
