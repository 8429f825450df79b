"""Two living owners of a capture: the host of one is suspended, the other takes over."""

import random
import time
from contextlib import ExitStack

import psutil
import pytest
from tests.integration.capture.host_bench import VARIABLES, Bench
from tests.waiting import until

from headrace.capture import HostSupervisor
from headrace.sdk.errors import StaleEpochError
from headrace.worker.capture_task import CaptureTask

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("kind", ["batch", "spread"])
@pytest.mark.parametrize("overlaps", [4, pytest.param(40, marks=pytest.mark.long)])
def test_a_host_that_wakes_when_another_owner_has_moved_on_appends_nothing(
    bench: Bench, kind: str, overlaps: int
) -> None:
    limit = 400 * overlaps
    config = {"kind": kind, "limit": limit, "rows": 20, "pause": 0.01}
    spec = bench.spec(config=config)
    chance = random.Random(11)  # noqa: S311 - no secret
    with ExitStack() as ended:
        owner = bench
        task = owner.start(spec, once=True)
        for _ in range(overlaps):
            _until_it_appends(owner, task)
            time.sleep(chance.random() / 25)
            asleep = [psutil.Process(pid) for pid in owner.hosts.pids]
            for each in asleep:
                each.suspend()
            hosts = HostSupervisor(variables=VARIABLES)
            ended.callback(hosts.close)
            following = Bench(bench.folder, bench.store, hosts)
            its_task = following.start(spec, once=True)
            _until_it_appends(following, its_task)
            for each in asleep:
                each.resume()
            until(lambda woken=task: woken.failure is not None)  # type: ignore[misc]  # a default in a lambda
            assert isinstance(task.failure, StaleEpochError)
            task.stop()
            owner, task = following, its_task
        until(lambda: task.completed or task.failure is not None)
        task.stop()
    assert task.failure is None
    bench.check_moved_once(task, kind, limit)


def _until_it_appends(owner: Bench, task: CaptureTask) -> None:
    before = len(owner.appended)
    until(lambda: len(owner.appended) > before or task.failure is not None)
    assert task.failure is None
    assert not task.completed, "there was too little to read for the next overlap"
