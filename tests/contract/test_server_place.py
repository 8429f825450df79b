"""Who may keep the connectors of a store that several servers share."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from headrace.runtime.server import only_in_store
from headrace.sdk import StateError
from headrace.sdk.errors import StaleEpochError
from headrace.settings import Settings
from headrace.store import Place, ServerPlaces
from headrace.worker import Owner

LONG, SHORT = timedelta(minutes=10), timedelta(milliseconds=1)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(place_of: Callable[[str], Place]) -> str:
    return str(place_of("postgresql"))


@pytest.fixture
def places(url: str) -> Iterator[ServerPlaces]:
    made = ServerPlaces(url)
    yield made
    made.close()


def alive(_: str) -> bool:
    return False


def test_one_server_has_the_place_and_another_is_told_who(places: ServerPlaces) -> None:
    assert places.take("one", LONG, alive) is None
    with pytest.raises(StateError, match=r"Another server, one, "):
        places.take("two", LONG, alive)
    places.keep("one", LONG)
    places.leave("one")
    assert places.take("two", LONG, alive) is None


def test_the_place_of_one_that_is_not_heard_of_is_taken_and_lost_for_good(
    places: ServerPlaces,
) -> None:
    places.take("one", SHORT, alive)
    time.sleep(0.05)
    assert places.take("two", LONG, alive) == "one"
    with pytest.raises(StaleEpochError):
        places.keep("one", LONG)
    places.leave("one")
    with pytest.raises(StateError, match="two"):
        places.take("three", LONG, alive)


def test_one_that_is_known_to_be_dead_is_not_waited_for(places: ServerPlaces) -> None:
    places.take("one", LONG, alive)
    assert places.take("two", LONG, lambda owner: owner == "one") == "one"


def test_of_many_that_come_at_once_one_gets_the_place(url: str) -> None:
    barrier, got = threading.Barrier(5), []

    def come(number: int) -> None:
        some = ServerPlaces(url)
        barrier.wait()
        try:
            some.take(str(number), LONG, alive)
            got.append(number)
        except StateError:
            pass
        finally:
            some.close()

    threads = [threading.Thread(target=come, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def settings(url: str, home: Path, lease: float) -> Settings:
    return Settings(home=home, store_url=SecretStr(url), lease=timedelta(seconds=lease))


def test_a_second_server_is_refused_until_the_first_has_ended(url: str, tmp_path: Path) -> None:
    lost = threading.Event()
    with Owner(tmp_path / "a") as one, Owner(tmp_path / "b") as two:
        first, second = (settings(url, tmp_path / name, 60) for name in "ab")
        with only_in_store(first, one, lost.set) as former:
            assert former is None
            with pytest.raises(StateError), only_in_store(second, two, lost.set):
                pass
        with only_in_store(second, two, lost.set):
            pass
    assert not lost.is_set()


def test_a_server_is_told_when_another_has_taken_its_place(
    url: str, places: ServerPlaces, tmp_path: Path
) -> None:
    lost = threading.Event()
    with Owner(tmp_path) as one, only_in_store(settings(url, tmp_path, 0.3), one, lost.set):
        # As if it had been away for longer than its lease.
        places.take("two", LONG, lambda _: True)
        assert lost.wait(60)
