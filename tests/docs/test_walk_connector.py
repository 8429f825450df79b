"""The page on how a request becomes a task names all that it passes, as it is measured."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.docs.walks import Walk
from tests.waiting import until
from typing_extensions import override

from headrace.model import TaskId, TaskState
from headrace.rest import Listener, Serving, Workbench, server_app
from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.worker import Reconciler
from headrace.worker.events import LoggedEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "walk-connector.md"
MOST_STEPS, MOST_MODULES = 120, 30
CONFIG = {
    "connector.class": "datagen",
    "topic": "orders",
    "rows": "1000000",
    "rate": "1",
    "schema": "id bigint",
}
LATER = {
    "ServedPlan.changed",
    "WorkerMetrics.connector_changed",
    "Connectors.version_of",
    "Registry.find",
    "ConnectorStore.set_status",
}
"""What the reconciler does with a connector that runs, sooner or later than its task does."""
OTHERS = (
    *("headrace-upkeep", "headrace-leases", "headrace-spark", "headrace-stalls"),
    *("headrace-scheduler", "headrace-runs", "headrace-alerts", "headrace-alerts-log"),
)
"""Threads that do what they always do, whoever asks for what."""


class ServerWalk(Walk):
    """Notes what the threads of a server call, those that are started from now on.

    A thread ends its part when it has told that a task runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._noting = False
        self._ended: set[int] = set()
        threading.setprofile(self._profile)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what is called meanwhile."""
        self.callers.clear()
        self._ended.clear()
        self._noting = True
        try:
            yield
        finally:
            self._noting = False
            threading.setprofile(None)

    def end_here(self) -> None:
        """Note nothing more of what this thread calls."""
        self._ended.add(threading.get_ident())

    @override
    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        noting = self._noting and threading.get_ident() not in self._ended
        if noting and threading.current_thread().name not in OTHERS:
            super()._profile(frame, event, value)


class Told(LoggedEvents):
    """Knows when a task runs."""

    def __init__(self, walk: ServerWalk) -> None:
        self.walk = walk
        self.running = threading.Event()

    @override
    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        super().state_changed(task, state, error)
        if state is TaskState.RUNNING:
            self.walk.end_here()
            self.running.set()


@pytest.fixture(scope="module")
def walk(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The second connector of a server: what is done once has been done."""
    home = tmp_path_factory.mktemp("walk") / "home"
    walk = ServerWalk()
    told = Told(walk)
    with pytest.MonkeyPatch.context() as patch, Runtime(load_settings(home=home)) as runtime:
        # It does this from time to time, whoever asks for what.
        defaults: Any = Reconciler.__init__.__kwdefaults__
        patch.setitem(defaults, "lost_interval", timedelta(hours=1))
        runtime.spark = spark
        with runtime.server(told) as connectors:
            listener = Listener(port=0)
            bench = Workbench(runtime, told, connectors.clock)
            app = server_app(connectors, runtime.jobs, bench, listener)
            with Serving(app, listener) as serving:
                serving.start()
                url = f"{serving.url}/connectors"
                httpx2.put(f"{url}/first/config", json=CONFIG).raise_for_status()
                assert told.running.wait(60)
                httpx2.put(f"{url}/first/stop").raise_for_status()
                until(
                    lambda: (
                        httpx2.get(f"{url}/first/status").json()["connector"]["state"]
                        == "STOPPED"
                    ),
                    lambda: httpx2.get(f"{url}/first/status").json(),
                )
                told.running.clear()
                warming = [t for t in threading.enumerate() if t.name == "headrace-plugins"]
                for thread in warming:
                    thread.join()
                with walk.noting():
                    httpx2.put(f"{url}/orders/config", json=CONFIG).raise_for_status()
                    assert told.running.wait(60)
        del runtime.spark
    return walk


def test_the_page_names_each_step(walk: Walk) -> None:
    text = PAGE.read_text()
    steps = [step for step in walk.steps if step[1] not in LATER]
    missing = [module for module, _ in steps if f"`{module}`" not in text]
    missing += [name for _, name in steps if f"`{name}`" not in text]
    assert not missing


def test_the_page_names_no_step_that_is_not_taken(walk: Walk) -> None:
    section = PAGE.read_text().partition("## The walk")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(_?[A-Z]\w+\.\w+|_?[a-z_]+)`", section))
    assert named - LATER <= {name for _, name in walk.callers}


def test_the_page_says_how_long_the_walk_is(walk: Walk) -> None:
    steps = [step for step in walk.steps if step[1] not in LATER]
    figures = (len(steps), len({module for module, _ in steps}))
    said = re.search(r"\*\*(\d+) steps in (\d+) modules\*\*", PAGE.read_text())
    assert said is not None
    assert figures == (int(said[1]), int(said[2]))
    assert figures[0] <= MOST_STEPS
    assert figures[1] <= MOST_MODULES
