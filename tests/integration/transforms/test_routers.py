"""The routers on real Spark, with Kafka Connect's topics."""

import pytest
from tests.integration.transforms.tried import Try, tried

from headrace.sdk import ConfigErrors
from headrace.sdk.sqltext import literal
from headrace_plugins.predicates import TopicNameMatches
from headrace_plugins.transforms.routers import RegexRouter
from headrace_plugins.transforms.timestamps import TimestampRouter

pytestmark = pytest.mark.spark

THEN = "timestamp_millis(1483425001864)"

# Topic, regular expression, replacement, topic after. The two at the top are Kafka's own.
ROUTES = [
    ("index-20160117", r"(.*)-(\d{8})", "$1", "index"),
    ("orders", ".*", "prefix-$0", "prefix-orders"),
    ("ab", "a|ab", "x", "xb"),
    ("ab", "a", "x", "ab"),
    ("", ".*", "x", "x"),
    ("a.b", r"(\w)\.(?<last>\w)", r"${last}_$1\$", "b_a$"),
    ("abc", "(a)(b)?(z)?c", "$3$2$10", "ba0"),
    ("abc", "(?i)ABC", "$0$0", "abcabc"),
    ("abc", r"\Qabc", "it's", "it's"),
    ("abc", r"a\Qb\Ec", "1", "1"),
    ("a[c", r"a\[c", r"\\", "\\"),
    ("abc", "(?x) a b c # all", "free", "free"),
    ("abc", r"\p{Lower}+", "p", "p"),
    ("abc", "[a-z&&[^x]]*(.)", "$1", "c"),
    ("line\n", "line", "x", "line\n"),
    ("line\n", "line.", "x", "line\n"),
    ("line\n", "(?s)line.", "x", "x"),
    ("aa", r"(a)\1", "twice", "twice"),
    ("Ärger", r"\w+", "x", "Ärger"),
]


def router(regex: str, replacement: str) -> dict[str, str]:
    return {"regex": regex, "replacement": replacement}


def test_a_topic_that_matches_as_a_whole_has_its_first_match_replaced(spark) -> None:
    found = tried(
        spark,
        *(
            Try(RegexRouter, router(regex, to), topic=topic, constant_topic=constant)
            for constant in (True, False)
            for topic, regex, to, _ in ROUTES
        ),
    )
    topics = [record["topic"] for record in found]
    assert topics == [after for *_, after in ROUTES] * 2


def test_a_constant_topic_stays_constant_where_python_can_tell() -> None:
    known = {
        regex: Try(RegexRouter, router(regex, "x"), topic="abc").after().topic
        for regex in ("abc", "x", "a(?:b)c", r"\p{Lower}+", "[a-z&&[^x]]*", "(?x)abc")
    }
    assert [topic for topic in known.values() if topic == literal("x")] == ["'x'"] * 2
    assert known["x"] == literal("abc")
    assert [regex for regex, topic in known.items() if "RLIKE" in topic] == [
        *(r"\p{Lower}+", "[a-z&&[^x]]*", "(?x)abc")
    ]


def test_a_predicate_on_a_constant_topic_leaves_it_constant() -> None:
    for pattern, after in (("t", "x"), ("u", "t")):
        predicate = (TopicNameMatches, {"pattern": pattern})
        one = Try(RegexRouter, router("t", "x"), predicate=predicate)
        assert one.after().topic == literal(after)


def test_topics_get_the_records_time_in_utc(spark) -> None:
    found = tried(
        spark,
        Try(TimestampRouter, {}, topic="test", timestamp=THEN),
        Try(TimestampRouter, {}, topic="test", timestamp=THEN, constant_topic=False),
        Try(TimestampRouter, {"topic.format": "all"}, timestamp=THEN),
        Try(
            TimestampRouter,
            {"topic.format": "${timestamp}.${topic}.it's", "timestamp.format": "yyyy-'w'w u"},
            topic="${timestamp}",
            timestamp=THEN,
        ),
        Try(TimestampRouter, {}, topic="test"),
    )
    assert [record["topic"] for record in found[:4]] == [
        *("test-20170103", "test-20170103", "all"),
        "2017-w1 2.2017-w1 2.it's",
    ]
    assert found[4]["error"]["message"].startswith("Timestamp missing on record: ")
    assert found[4]["error"]["exception"] == "org.apache.kafka.connect.errors.DataException"


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        (RegexRouter, router("a(", "x"), "Invalid regex"),
        (RegexRouter, router("a", "$1"), r"No group 1\."),
        (RegexRouter, router("(?<n>a)", "${m}"), r"No group with name \{m\}\."),
        (RegexRouter, router("a", "$"), "Illegal group reference"),
        (RegexRouter, router("a", "x\\"), "Nothing to escape"),
        (TimestampRouter, {"timestamp.format": "nope"}, "Illegal pattern character 'n'"),
    ],
)
def test_what_java_would_refuse_later_is_refused_at_once(
    kind, config: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        kind.config_def().parse(config)


def test_whoever_reads_a_topic_that_is_routed_to_is_told_to_wait() -> None:
    assert RegexRouter.routes
    assert TimestampRouter.routes
