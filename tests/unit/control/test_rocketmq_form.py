"""RocketMQ Connect's words for a configuration become Kafka Connect's, and come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import from_rocketmq, in_rocketmq_words, to_rocketmq
from headrace.sdk import ConfigError

SOURCE = {"connector.class": "Source"}
SINK = {"connector.class": "Sink", "connect.topicnames": "t"}
NAMES = st.text("ab.-", min_size=1, max_size=3)


def read(config: dict[str, str]) -> dict[str, str]:
    return from_rocketmq(config, lambda found: found["connector.class"] == "Source")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"max.tasks": "2"}, {"tasks.max": "2"}),
        ({"max-task": "2"}, {"tasks.max": "2"}),
        ({"tasks.max": "2"}, {"tasks.max": "2"}),
        ({"connect.topicname": "t"}, {"topic": "t"}),
        (
            {"errors.deadletterqueue.context.properties.enable": "true"},
            {"errors.deadletterqueue.context.headers.enable": "true"},
        ),
        (
            {"transforms": "a, b", "transforms.a.class": "X", "transforms.c.class": "Y"},
            {"transforms": "a, b", "transforms.a.type": "X", "transforms.c.class": "Y"},
        ),
        ({"filename": "/in", "connector.direct.enable": "false"}, None),
    ],
)
def test_keys_of_a_source_are_translated(
    theirs: dict[str, str], ours: dict[str, str] | None
) -> None:
    assert read({**SOURCE, **theirs}) == {**SOURCE, **(theirs if ours is None else ours)}


def test_topics_of_a_sink_are_divided_by_semicolons() -> None:
    assert read({**SINK, "connect.topicnames": "a; b;;c"})["topics"] == "a,b,c"
    assert to_rocketmq({"topics": "a, b"}) == {"connect.topicnames": "a;b"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("CONSUME_FROM_FIRST_OFFSET", "earliest"), ("CONSUME_FROM_LAST_OFFSET", "latest")],
)
def test_a_sink_begins_where_it_is_told(theirs: str, ours: str) -> None:
    given = {**SINK, "consume.from.where": theirs}
    assert read(given)["topics.start"] == ours
    assert to_rocketmq(read(given)) == given
    assert to_rocketmq({"topics.start": "version:3"}) == {"topics.start": "version:3"}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "connector.class"),
        ({"connector.class": "Sink"}, "connect.topicnames"),
        ({**SINK, "consume.from.where": "NOW"}, "consume.from.where"),
        ({**SOURCE, "connector.direct.enable": "TRUE"}, "connector.direct.enable"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(config: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(config)
    assert refused.value.field == field


def test_sentences_tell_of_keys_by_their_names_there() -> None:
    config = {"transforms": "a"}
    assert in_rocketmq_words("topic", config) == "connect.topicname"
    told = in_rocketmq_words("Wrong tasks.max, x.tasks.max or transforms.a.type.", config)
    assert told == "Wrong max.tasks, x.tasks.max or transforms.a.class."
    assert in_rocketmq_words("The topic is not there.", config) == "The topic is not there."


@given(
    topics=st.lists(st.text("abc", min_size=1), min_size=1),
    steps=st.lists(NAMES, unique=True),
    own=st.dictionaries(NAMES, st.text()),
    source=st.booleans(),
)
def test_what_comes_back_is_what_was_given(
    topics: list[str], steps: list[str], own: dict[str, str], *, source: bool
) -> None:
    config = {
        **own,
        **(SOURCE if source else {**SINK, "connect.topicnames": ";".join(topics)}),
        "max.tasks": "1",
        "transforms": ",".join(steps),
        **{f"transforms.{step}.class": "X" for step in steps},
        **{f"transforms.{step}.field": "f" for step in steps},
    }
    kept = read(config)
    assert not {"max.tasks", "connect.topicnames"} & kept.keys()
    assert to_rocketmq({**kept, "name": "n"}) == config
