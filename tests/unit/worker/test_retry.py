"""The waits between two tries follow Kafka Connect's formula."""

from datetime import timedelta

from headrace.model import Backoff


def seconds(*waits: timedelta) -> list[float]:
    return [wait.total_seconds() for wait in waits]


def test_waits_double_and_are_random_beyond_the_longest() -> None:
    backoff = Backoff(longest=timedelta(seconds=2), random=lambda: 0.5)
    waits = (backoff.wait(failures) for failures in range(1, 7))
    assert seconds(*waits) == [0.3, 0.6, 1.2, 1.0, 1.0, 1.0]
    assert seconds(Backoff(random=lambda: 0.25).wait(10_000)) == [15.0]


def test_a_wait_ends_with_the_timeout() -> None:
    backoff = Backoff(timeout=timedelta(seconds=1))
    tried = timedelta(milliseconds=900)
    assert seconds(backoff.wait(3, None, tried)) == [0.1]
    assert not backoff.expired(tried)
    assert backoff.expired(timedelta(seconds=1))


def test_a_system_that_asks_for_more_time_gets_it() -> None:
    assert seconds(Backoff().wait(1, timedelta(seconds=7))) == [7.0]


def test_without_a_timeout_there_is_no_end() -> None:
    assert not Backoff().expired(timedelta(days=9))


def test_a_timeout_of_zero_is_for_not_at_all() -> None:
    assert Backoff(timeout=timedelta()).expired(timedelta())
