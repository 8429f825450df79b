"""The keys of all connectors are Kafka Connect's, with its defaults, groups and rules."""

from typing import Any

import pytest

from headrace.control.connector_settings import sink_def, source_def
from headrace.sdk.config import ConfigDef

# key, type, importance, default, validator, group, place; as Kafka Connect 4.3 shows them, but
# for errors.retry.timeout: its 0 means never for transforms and for ever for connectors
COMMON = """
name|STRING|HIGH|REQUIRED|non-empty string without ISO control characters|Common|1
connector.class|STRING|HIGH|REQUIRED|-|Common|2
connector.plugin.version|STRING|MEDIUM|null|*|Common|3
tasks.max|INT|HIGH|1|[1,...]|Common|4
tasks.max.enforce|BOOLEAN|LOW|true|-|Common|5
key.converter|CLASS|LOW|null|*|Common|6
key.converter.plugin.version|STRING|LOW|null|*|Common|7
value.converter|CLASS|LOW|null|*|Common|8
value.converter.plugin.version|STRING|LOW|null|*|Common|9
header.converter|CLASS|LOW|null|*|Common|10
header.converter.plugin.version|STRING|LOW|null|*|Common|11
transforms|LIST|LOW||non-null string, unique transformation aliases|Transforms|12
predicates|LIST|LOW||non-null string, unique predicate aliases|Predicates|13
config.action.reload|STRING|LOW|restart|[none, restart]|Common|14
errors.retry.timeout|LONG|MEDIUM|-1|-|Error Handling|1
errors.retry.delay.max.ms|LONG|MEDIUM|60000|-|Error Handling|2
errors.tolerance|STRING|MEDIUM|none|[none, all]|Error Handling|3
errors.log.enable|BOOLEAN|MEDIUM|false|-|Error Handling|4
errors.log.include.messages|BOOLEAN|MEDIUM|false|-|Error Handling|5
errors.deadletterqueue.topic.name|STRING|MEDIUM||-|Error Handling|6
errors.deadletterqueue.topic.replication.factor|SHORT|MEDIUM|3|-|Error Handling|7
errors.deadletterqueue.context.headers.enable|BOOLEAN|MEDIUM|false|-|Error Handling|8
"""
SOURCE = """
topic.creation.groups|LIST|LOW||non-null string, unique topic creation groups|Topic Creation|1
exactly.once.support|STRING|MEDIUM|requested|ANY CASE [REQUIRED, REQUESTED]|ONCE|2
transaction.boundary|STRING|MEDIUM|poll|ANY CASE [INTERVAL, POLL, CONNECTOR]|ONCE|3
transaction.boundary.interval.ms|LONG|LOW|null|[0,...]|ONCE|4
offsets.storage.topic|STRING|LOW|null|non-empty string|offsets.topic|1
topic.creation.default.retention.ms|LONG|LOW|null|LIMIT|Topic Creation|2
topic.creation.default.retention.bytes|LONG|LOW|null|LIMIT|Topic Creation|3
"""
SINK = """
topics|LIST|HIGH||-|Common|4
topics.regex|STRING|HIGH||valid regex|Common|4
topics.start|STRING|MEDIUM|earliest|earliest, latest, version:N or time:ISO|Batches|4
"""
OURS = """
errors.tolerance.max.count|LONG|MEDIUM|null|[0,...]|Error Handling|9
errors.tolerance.max.share|DOUBLE|MEDIUM|null|[0,...,1]|Error Handling|10
errors.tolerance.window.ms|LONG|MEDIUM|null|[1,...]|Error Handling|11
errors.restart.enable|BOOLEAN|MEDIUM|null|-|Error Handling|12
errors.restart.delay.ms|LONG|MEDIUM|null|[1,...]|Error Handling|13
errors.restart.delay.max.ms|LONG|MEDIUM|null|[1,...]|Error Handling|14
errors.restart.max.attempts|INT|MEDIUM|null|[-1,...]|Error Handling|15
errors.restart.quiet.ms|LONG|MEDIUM|null|[1,...]|Error Handling|16
batch.max.rows|LONG|MEDIUM|10000000|[1,...]|Batches|1
batch.max.bytes|LONG|MEDIUM|null|[1,...]|Batches|2
poll.interval.ms|LONG|MEDIUM|1000|[1,...]|Batches|3
schema.evolution|STRING|MEDIUM|evolve|[evolve, lenient, ignore, reject]|Schema Evolution|1
schema.evolution.add|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|2
schema.evolution.widen|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|3
schema.evolution.narrow|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|4
schema.evolution.retype|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|5
schema.evolution.rename|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|6
schema.evolution.drop|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|7
schema.evolution.reorder|STRING|LOW|null|[evolve, lenient, ignore, reject]|Schema Evolution|8
schema.evolution.renames|LIST|LOW||old:new pairs|Schema Evolution|9
"""


def rows(*tables: str) -> list[list[str]]:
    text = "".join(tables).replace("ONCE", "Exactly Once Support")
    text = text.replace("LIMIT", "a number above 0, or -1 for no limit")
    text = text.replace("ANY CASE", "(case insensitive)")
    return [line.split("|") for line in text.splitlines() if line]


def told(definition: ConfigDef, name: str, *, validator: bool) -> list[str]:
    key = definition.keys[name]
    default = "REQUIRED" if key.required else str(key.default_text or _null(key.default))
    checked = "*" if not validator else "-" if key.validator is None else str(key.validator)
    facts = (key.type.value, key.importance.value, default, checked, key.group, key.order)
    return [name, *map(str, facts)]


def _null(default: Any) -> str:
    return "null" if default is None else ""


CASES = [
    pytest.param(definition, row, id=f"{kind} {row[0]}")
    for kind, definition, own in (
        ("source", source_def(), SOURCE),
        ("sink", sink_def(), SINK),
    )
    for row in rows(COMMON, own, OURS)
]


@pytest.mark.parametrize(("definition", "row"), CASES)
def test_each_key_is_kafkas(definition: ConfigDef, row: list[str]) -> None:
    assert told(definition, row[0], validator=row[4] != "*") == row


def test_there_are_no_other_keys() -> None:
    assert set(source_def().keys) == {row[0] for row in rows(COMMON, SOURCE, OURS)}
    assert set(sink_def().keys) == {row[0] for row in rows(COMMON, SINK, OURS)}


def sink(**props: str) -> dict[str, list[str]]:
    dotted = {key.replace("_", "."): value for key, value in props.items()}
    given = {"name": "n", "connector.class": "c", **dotted}
    values = sink_def().validate(given)
    return {value.name: list(value.error_messages) for value in values if value.errors}


def test_a_sink_must_say_its_topics() -> None:
    problem = ["Must configure one of topics or topics.regex"]
    assert sink() == {"topics": problem, "topics.regex": problem}
    assert sink(topics=" ") == sink()


def test_a_sink_says_its_topics_in_one_way() -> None:
    problem = ["topics and topics.regex are mutually exclusive options, but both are set."]
    assert sink(topics="a", topics_regex="a.*") == {"topics": problem, "topics.regex": problem}
    assert sink(topics="a,b") == {}
    assert sink(topics_regex="a.*") == {}


def test_a_sink_does_not_read_its_own_dead_letters() -> None:
    dead = {"errors_deadletterqueue_topic_name": "dead"}
    assert sink(topics="a, dead", **dead) == {
        "topics": [
            (
                "The DLQ topic 'dead' may not be included in the list of topics "
                "('topics=[a, dead]') consumed by the connector"
            )
        ]
    }
    assert sink(topics_regex="d.*", **dead) == {
        "topics.regex": [
            (
                "The DLQ topic 'dead' may not be matched by the regex for the topics "
                "('topics.regex=d.*') consumed by the connector"
            )
        ]
    }
    assert sink(topics="a", **dead) == {}
    assert sink(topics_regex="dea", **dead) == {}


def test_a_regex_that_is_none_is_told_once() -> None:
    errors = sink(topics_regex="[", errors_deadletterqueue_topic_name="dead")
    assert list(errors) == ["topics.regex"]
    assert len(errors["topics.regex"]) == 1


def test_a_regex_is_matched_in_linear_time() -> None:
    dead = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "a" * 200}
    assert sink(topics_regex="(a+)+b", **dead) == {}
    assert list(sink(topics_regex="(a+)+", **dead)) == ["topics.regex"]


@pytest.mark.parametrize("pattern", ["(?!_).*", r"(a)\1", "a++", "(?:(?:a{999}){999}){999}"])
def test_a_regex_that_may_take_longer_is_refused(pattern: str) -> None:
    (problem,) = sink(topics_regex=pattern)["topics.regex"]
    assert "Invalid regex" in problem


def test_aliases_are_unique() -> None:
    assert sink(topics="a", transforms="x,y,x") == {
        "transforms": [
            "Invalid value [x, y, x] for configuration transforms: Duplicate alias provided."
        ]
    }


def test_an_empty_name_is_refused_in_kafkas_words() -> None:
    assert sink(topics="a", name="") == {
        "name": ["Invalid value  for configuration name: String may not be empty"]
    }


def test_groups_come_in_the_order_of_first_use() -> None:
    assert source_def().groups == (
        "Common",
        "Transforms",
        "Predicates",
        "Error Handling",
        "Batches",
        "Schema Evolution",
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    )
