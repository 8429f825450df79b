"""What a server's log says of its tasks."""

from datetime import timedelta

from structlog.testing import capture_logs

from headrace.model import SparkUnavailableError, TaskId
from headrace.sdk import RetriableError
from headrace.worker.events import LoggedEvents


def test_a_wait_is_told_only_where_it_is_kept() -> None:
    events, task, wait = LoggedEvents(), TaskId("a", 0), timedelta(seconds=30)
    with capture_logs() as told:
        events.retrying(task, RetriableError("busy"), wait)
        events.retrying(task, SparkUnavailableError(), wait)
    assert [(each["event"], each.get("seconds")) for each in told] == [
        ("task will be retried", 30.0),
        ("task waits for Spark to restart", None),
    ]
