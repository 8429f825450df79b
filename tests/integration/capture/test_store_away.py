"""A store that gives no answer now and then: a capture waits for it, and goes on."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.capture.host_bench import VARIABLES, Bench
from tests.waiting import until

from headrace.capture import HostSupervisor
from headrace.model import Batch
from headrace.sdk import Position
from headrace.store import Store, StoreUnavailableError
from headrace.worker.capture_task import CaptureTask

T = TypeVar("T")
pytestmark = pytest.mark.timeout(240)


class Faulty(Store):
    """Fails calls by their number: before anything is written, or after all is."""

    calls = 0
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    def begin_batch(self, *args: Any, **values: Any) -> Batch:
        return self._faulty(super().begin_batch, *args, **values)

    def finish_batch(self, *args: Any, **values: Any) -> Batch:
        return self._faulty(super().finish_batch, *args, **values)

    def position(self, *args: Any) -> Position:
        return self._faulty(super().position, *args)

    def _faulty(self, real: Callable[..., T], *args: Any, **values: Any) -> T:
        self.calls += 1
        here = self.calls
        if here in self.before:
            raise StoreUnavailableError
        found = real(*args, **values)
        if here in self.after:
            raise StoreUnavailableError
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = Faulty(tmp_path / "store.db")
    hosts = HostSupervisor(variables=VARIABLES)
    yield Bench(tmp_path, store, hosts)
    hosts.close()
    store.close()


def is_done(task: CaptureTask, seen: list[Exception]) -> bool:
    """Take a step as the worker does: one that meets a busy system is taken again."""
    try:
        return task.step().ended
    except StoreUnavailableError as error:
        seen.append(error)
        return False


@pytest.mark.parametrize("kind", ["batch", "spread"])
def test_a_capture_waits_for_its_store_and_moves_each_record_once(
    bench: Bench, kind: str
) -> None:
    assert isinstance(bench.store, Faulty)
    bench.store.before = frozenset({1, 4, 13})
    bench.store.after = frozenset({7, 10, 19})
    limit, seen = 400, list[Exception]()
    config = {"kind": kind, "limit": limit, "rows": 20, "pause": 0.01}
    task = bench.start(bench.spec(config=config), once=True)
    until(lambda: is_done(task, seen))
    task.stop()
    assert len(seen) >= 5
    bench.check_moved_once(task, kind, limit)


def test_a_capture_that_never_started_is_not_waited_for(bench: Bench) -> None:
    bench.start(bench.spec(config={"kind": "batch", "limit": 10, "rows": 1}))
    never = bench.task(bench.spec("never"), grace=timedelta(hours=1))
    never.stop()
