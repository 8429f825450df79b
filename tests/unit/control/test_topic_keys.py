"""A definition says, in Kafka Connect's keys, how long the topics that it makes keep rows."""

from datetime import timedelta

import pytest

from headrace.control import parse_common
from headrace.control.definition_forms import from_kafka
from headrace.model import Definition, TopicRetention
from headrace.sdk import ConfigErrors

AGE, SIZE = "topic.creation.default.retention.ms", "topic.creation.default.retention.bytes"


def defined(**config: str) -> Definition:
    return from_kafka(
        {"name": "c", "config": {"connector.class": "x", **config}}, lambda _: True
    )


def test_limits_of_time_and_size_are_read() -> None:
    limits = parse_common(defined(**{AGE: "3600000", SIZE: "-1"})).topic_retention
    assert limits == TopicRetention(age=timedelta(hours=1), size_bytes=None)
    limits = parse_common(defined(**{AGE: "-1", SIZE: "5"})).topic_retention
    assert limits == TopicRetention(age=None, size_bytes=5)


def test_the_largest_number_of_kafka_means_for_ever() -> None:
    limits = parse_common(defined(**{AGE: str(2**63 - 1)})).topic_retention
    assert limits == TopicRetention(age=None)


def test_a_source_that_says_nothing_makes_topics_as_all_are() -> None:
    assert parse_common(defined()).topic_retention is None


@pytest.mark.parametrize("limit", ["0", "-2", "7 days"])
def test_a_limit_that_makes_no_sense_is_refused(limit: str) -> None:
    with pytest.raises(ConfigErrors):
        parse_common(defined(**{AGE: limit}))
