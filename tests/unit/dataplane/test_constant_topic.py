"""The topic into which a chain sends all records is known without any of them."""

import pytest

from headrace.dataplane import Step, constant_topic
from headrace.sdk import Predicate, RecordExpr, Transform
from headrace_plugins.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.routers import RegexRouter
from headrace_plugins.transforms.timestamps import TimestampRouter


def transform(kind: type[Transform], **keys: str) -> Transform:
    props = {key.replace("_", "."): value for key, value in keys.items()}
    return kind("t", kind.config_def().parse(props))


def predicate(kind: type[Predicate], **keys: str) -> Predicate:
    return kind("p", kind.config_def().parse(keys))


def router(replacement: str, regex: str = ".*") -> Transform:
    return transform(RegexRouter, regex=regex, replacement=replacement)


ROUTER = router("renamed")
CAST = transform(Cast, spec="amount:int64")


@pytest.mark.parametrize(
    ("steps", "topic"),
    [
        ([], "t"),
        ([Step(CAST)], "t"),
        ([Step(CAST), Step(ROUTER), Step(router("$0-x"))], "renamed-x"),
        ([Step(router("x", "other"))], "t"),
        ([Step(ROUTER, predicate(TopicNameMatches, pattern="t"))], "renamed"),
        ([Step(ROUTER, predicate(TopicNameMatches, pattern="u"))], "t"),
        ([Step(ROUTER, predicate(TopicNameMatches, pattern="t"), negate=True)], "t"),
        ([Step(ROUTER, predicate(RecordIsTombstone))], None),
        ([Step(ROUTER, predicate(HasHeaderKey, name="h"))], None),
        ([Step(transform(TimestampRouter))], None),
        ([Step(transform(TimestampRouter)), Step(router("x", "y"))], None),
    ],
)
def test_it_is_told_where_no_step_looks_at_the_records(
    steps: list[Step], topic: str | None
) -> None:
    assert constant_topic(steps, "t") == topic


def test_a_step_that_cannot_do_without_records_tells_nothing() -> None:
    class Broken(RegexRouter):
        def apply(self, shape: RecordExpr) -> RecordExpr:
            raise KeyError(shape)

    assert constant_topic([Step(transform(Broken, regex="t", replacement="u"))], "t") is None
