"""By which clock leases run out, however the clocks of machines are set."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.model import TaskId
from headrace.sdk import StateError
from headrace.store import Place, Store
from headrace.store.server_lease import Machine

TASK = TaskId("orders", 0)
LEASE = timedelta(seconds=30)
SECOND = 1_000_000
HOUR = 3600 * SECOND


@dataclass
class Set(Machine):
    """A machine whose clocks a test sets."""

    started: str = "first"
    day: int = 1_800_000_000 * SECOND
    on: int = 1000 * SECOND

    def boot(self) -> str:
        return self.started

    def wall(self) -> int:
        return self.day

    def steady(self) -> int:
        return self.on

    def go_on(self, seconds: int) -> None:
        self.day += seconds * SECOND
        self.on += seconds * SECOND


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_time_of_day_that_is_set_neither_takes_leases_nor_keeps_them(
    tmp_path: Path, jump: int
) -> None:
    machine = Set()
    with closing(Store(tmp_path / "store.db", machine)) as first:
        held = first.lease(TASK, "first", first.now(), LEASE)
        machine.day += jump
        # A process that starts now goes by the same clock as those that ran before.
        with closing(Store(tmp_path / "store.db", machine)) as second:
            with pytest.raises(StateError):
                second.lease(TASK, "second", second.now(), LEASE)
            machine.go_on(20)
            assert first.renew([held], first.now(), LEASE)
            machine.go_on(20)
            with pytest.raises(StateError):
                second.lease(TASK, "second", second.now(), LEASE)
            machine.go_on(11)
            assert second.lease(TASK, "second", second.now(), LEASE).epoch == held.epoch + 1


def test_leases_from_before_the_machine_was_started_are_over(tmp_path: Path) -> None:
    wrong = Set(day=4_000_000_000 * SECOND)  # its battery was empty
    with closing(Store(tmp_path / "store.db", wrong)) as store:
        store.lease(TASK, "first", store.now(), LEASE)
    with closing(Store(tmp_path / "store.db", Set("second", on=0))) as store:
        assert store.lease(TASK, "second", store.now(), LEASE).epoch == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_clock_goes_on_with_the_time(kind: str, place_of: Callable[[str], Place]) -> None:
    with closing(Store(place_of(kind))) as store:
        began = datetime.now(UTC)
        found = [store.now() for _ in range(3)]
        assert found == sorted(found)
        assert abs(found[0] - began) < timedelta(seconds=30)
