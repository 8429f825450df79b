"""Our own REST API: what a topic holds, who reads it, and how long it keeps its rows."""

from datetime import timedelta
from itertools import count

import pytest
from tests.contract.v1_client import V1
from tests.unit.topics.made_topics import append
from tests.unit.worker.scripts import now

from headrace.model import TaskId
from headrace.sdk import Mark, Position
from headrace.sdk.location import Location
from headrace.topics import Topic, Topics

pytestmark = pytest.mark.timeout(120)
_numbers = count()


@pytest.fixture
def topic(v1: V1) -> Topic:
    """Return a topic with two rows that no other test has changed."""
    topic = Topics(Location.of(v1.home / "topics")).get(f"t{next(_numbers)}")
    append(topic, [[1, 2]], Mark("source", 1, 1))
    return topic


def test_a_topic_is_shown_with_its_retention_and_its_readers(v1: V1, topic: Topic) -> None:
    task, stands = TaskId("reader", 0), Position.of({"topic": topic.name}, {"version": 1})
    state = v1.runtime.state
    lease = state.lease(task, "me", now(), timedelta(seconds=30))
    state.set_position(task, lease.epoch, stands)
    shown = v1("GET", f"/topics/{topic.name}").json()
    state.remove("reader")
    assert (shown["name"], shown["rows"], shown["version"]) == (topic.name, 2, 1)
    week = int(timedelta(days=7).total_seconds() * 1000)
    assert shown["retention"] == {"ms": week, "bytes": -1, "unread": False}
    assert shown["readers"] == [{"task": str(task), "version": 1, "running": False}]


def test_what_is_given_changes_and_the_rest_stays(v1: V1, topic: Topic) -> None:
    change = {"retention_ms": -1, "retention_bytes": 5_000}
    assert v1("PATCH", f"/topics/{topic.name}", change).status_code == 200
    changed = v1("PATCH", f"/topics/{topic.name}", {"retention_unread": True})
    assert changed.json()["retention"] == {"ms": -1, "bytes": 5_000, "unread": True}
    kept = Topics(topic.location.parent).get(topic.name).retention()
    assert (kept.age, kept.size_bytes, kept.unread) == (None, 5_000, True)


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
def test_what_makes_no_sense_is_refused(
    v1: V1, topic: Topic, body: dict[str, object], status: int
) -> None:
    assert v1("PATCH", f"/topics/{topic.name}", body).status_code == status


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_topic_that_is_not_there_is_not_found(v1: V1, method: str) -> None:
    answer = v1(method, "/topics/none", {} if method == "PATCH" else None)
    assert (answer.status_code, answer.json()["code"]) == (404, "topic.not_found")
