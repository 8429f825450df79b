"""When what has failed is started anew, and what is said of it."""

from datetime import timedelta

import pytest

from headrace.model import PluginNotFoundError, RestartKeys, RestartPolicy, TaskId
from headrace.sdk import ConfigError, DataLostError, RetriableError, SinkError, SourceError
from headrace.sdk.errors import SetupError
from headrace.worker import Restarts

TASK = TaskId("c", 0)
ERROR = SourceError("broken")
SECOND = timedelta(seconds=1)


class Watch:
    """A clock that is set by hand, and never goes back."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def restarts(watch: Watch | None = None, chance: float = 0.0, **policy) -> Restarts:
    made = Restarts(watch or Watch(), lambda: chance)
    made.follow([TASK], RestartPolicy(**{"enabled": True, **policy}))
    return made


def test_the_waits_double_up_to_the_longest() -> None:
    some = restarts(first=5 * SECOND, longest=60 * SECOND)
    waits = [some.failed(TASK, ERROR).wait for _ in range(6)]
    assert waits == [n * SECOND for n in (5, 10, 20, 40, 60, 60)]


def test_up_to_half_of_a_wait_is_taken_off_at_random() -> None:
    policy = RestartPolicy(first=8 * SECOND)
    assert policy.wait(1, 0.0) == 8 * SECOND
    assert policy.wait(1, 0.5) == 6 * SECOND
    assert policy.wait(1, 0.999) > 4 * SECOND


def test_a_task_is_given_up_after_so_many_restarts_in_a_row() -> None:
    some = restarts(attempts=2)
    told = [some.failed(TASK, ERROR).text for _ in range(3)]
    assert told == [
        "Restart 1 of 2",
        "Restart 2 of 2",
        "It stays failed after 2 consecutive restarts.",
    ]


def test_without_an_end_the_waits_stay_finite() -> None:
    some = restarts(attempts=None, longest=60 * SECOND)
    waits = [some.failed(TASK, ERROR).wait for _ in range(2000)]
    assert waits[-1] == 60 * SECOND
    assert some.failed(TASK, ERROR).text == "Restart 2001"


def test_what_ran_for_long_has_failed_for_the_first_time() -> None:
    some = restarts(first=SECOND, attempts=2, quiet=60 * SECOND)
    ran = [1, 59, 60, 1]
    waits = [some.failed(TASK, ERROR, seconds * SECOND).wait for seconds in ran]
    assert waits == [SECOND, 2 * SECOND, SECOND, 2 * SECOND]


@pytest.mark.parametrize(
    "error",
    [ConfigError("x"), PluginNotFoundError("x"), SetupError("x"), DataLostError("x")],
    ids=lambda error: error.code,
)
def test_what_must_be_mended_first_is_not_restarted(error: Exception) -> None:
    some = restarts()
    assert some.failed(TASK, error).wait is None
    assert "fix this error first" in some.failed(TASK, error).text
    assert some.due() == []


def test_nothing_is_restarted_or_said_unless_it_is_enabled() -> None:
    for some in (restarts(enabled=False), Restarts()):
        assert some.failed(TASK, ERROR).text == ""
        assert some.failed(TASK, ERROR).wait is None


def test_each_is_due_once_when_its_time_has_come() -> None:
    watch = Watch()
    some = restarts(watch, first=5 * SECOND)
    some.failed(TASK, ERROR)
    assert some.due() == []
    watch.seconds += 5
    assert some.due() == [TASK]
    assert some.due() == []
    assert some.failed(TASK, SinkError("again")).wait == 10 * SECOND


def test_whoever_is_seen_to_by_hand_begins_from_the_first() -> None:
    watch = Watch()
    some = restarts(watch, first=5 * SECOND, attempts=1)
    some.failed(TASK, ERROR)
    some.forget([TASK])
    watch.seconds += 60
    assert some.due() == []
    assert some.failed(TASK, ERROR).wait == 5 * SECOND


def test_a_system_that_says_when_it_is_back_is_left_alone_until_then() -> None:
    some = restarts(first=SECOND)
    assert some.failed(TASK, RetriableError("busy", after=30 * SECOND)).wait == 30 * SECOND


def test_a_connector_says_only_what_it_wants_otherwise() -> None:
    server = RestartPolicy(enabled=False, first=SECOND, attempts=3)
    assert RestartKeys().over(server) == server
    own = RestartKeys(enabled=True, attempts=-1, longest=9 * SECOND).over(server)
    assert own == RestartPolicy(enabled=True, first=SECOND, longest=9 * SECOND, attempts=None)
