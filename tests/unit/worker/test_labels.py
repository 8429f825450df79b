"""Whatever a task's thread logs says which connector and task it is about."""

import threading
from typing import Any

from structlog.contextvars import get_contextvars
from tests.unit.worker.scripts import END, Script, Told, worker

from headrace.worker import Step


def test_a_step_and_a_stop_run_with_the_tasks_labels() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    class Looks(Script):
        def step(self) -> Step:
            seen.append(("step", dict(get_contextvars())))
            return super().step()

        def stop(self) -> None:
            seen.append(("stop", dict(get_contextvars())))
            super().stop()

    worker(Told(), Looks("a", END), Looks("b", END), threads=1).run()
    found = {(what, told["connector"], told["task"]) for what, told in seen}
    assert found == {(what, name, 0) for what in ("step", "stop") for name in "ab"}


def test_nothing_of_a_task_is_left_in_a_thread() -> None:
    left: list[dict[str, Any]] = []
    made = worker(Told(), Script("a", END))

    def run() -> None:
        made.run()
        left.append(dict(get_contextvars()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert left == [{}]
