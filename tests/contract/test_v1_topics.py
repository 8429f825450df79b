"""Our own REST API: what a topic holds, who reads it, and how long it keeps its rows."""

from datetime import timedelta

import pytest
from tests.contract.v1_client import V1
from tests.unit.topics.made_topics import append
from tests.unit.worker.scripts import now

from headrace.model import TaskId
from headrace.sdk import Mark, Position
from headrace.topics import Topic, Topics

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topic(v1: V1) -> Topic:
    topic = Topics(v1.home / "topics").get("t")
    append(topic, [[1, 2]], Mark("source", 1, 1))
    return topic


@pytest.mark.usefixtures("topic")
def test_a_topic_is_shown_with_its_retention_and_its_readers(v1: V1) -> None:
    task, stands = TaskId("reader", 0), Position.of({"topic": "t"}, {"version": 1})
    state = v1.runtime.state
    lease = state.lease(task, "me", now(), timedelta(seconds=30))
    state.set_position(task, lease.epoch, stands)
    shown = v1("GET", "/topics/t").json()
    state.remove("reader")
    assert (shown["name"], shown["rows"], shown["version"]) == ("t", 2, 1)
    week = int(timedelta(days=7).total_seconds() * 1000)
    assert shown["retention"] == {"ms": week, "bytes": -1, "unread": False}
    assert shown["readers"] == [{"task": str(task), "version": 1, "running": False}]


def test_what_is_given_changes_and_the_rest_stays(v1: V1, topic: Topic) -> None:
    change = {"retention_ms": -1, "retention_bytes": 5_000}
    assert v1("PATCH", "/topics/t", change).status_code == 200
    changed = v1("PATCH", "/topics/t", {"retention_unread": True})
    assert changed.json()["retention"] == {"ms": -1, "bytes": 5_000, "unread": True}
    kept = Topics(topic.path.parent).get("t").retention()
    assert (kept.age, kept.size_bytes, kept.unread) == (None, 5_000, True)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"retention_ms": 0}, 422),
        ({"retention_bytes": 0}, 422),
        ({"retention_ms": -2}, 422),
        ({"retention_ms": "7"}, 422),
        ({"retention_unread": "yes"}, 422),
        ({"days": 7}, 422),
    ],
)
def test_what_makes_no_sense_is_refused(v1: V1, body: dict[str, object], status: int) -> None:
    assert v1("PATCH", "/topics/t", body).status_code == status


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_topic_that_is_not_there_is_not_found(v1: V1, method: str) -> None:
    answer = v1(method, "/topics/none", {} if method == "PATCH" else None)
    assert (answer.status_code, answer.json()["code"]) == (404, "topic.not_found")
