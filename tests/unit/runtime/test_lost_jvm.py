"""Ends of Spark's JVM while records are sent again, and while a job runs."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from headrace.model import SparkCrashedError, SparkUnavailableError, TaskId, TaskState
from headrace.runtime import preview
from headrace.runtime.jobs import RunExecution
from headrace.worker import Outcome

TASK = TaskId("orders", -1)


@pytest.mark.parametrize(
    ("error", "problem"),
    [(Py4JNetworkError("sending or receiving"), "JVM ended"), (ValueError("other"), "other")],
)
def test_an_end_of_the_jvm_while_records_are_resent_is_an_error_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    class Failing:
        def __init__(self, **_: Any) -> None: ...

        def add(self, tasks: Any) -> None: ...

        def run(self) -> Outcome:
            return Outcome({TASK: TaskState.FAILED}, {TASK: error})

    monkeypatch.setattr(preview, "Worker", Failing)
    monkeypatch.setattr(preview, "backoff_of", lambda _plan, *, once: None)
    made: Any = SimpleNamespace(id=TASK, store=None, clock=None)
    found = preview.resend(
        made, made, spark=made, assembler=made, owner="w", lease=timedelta(seconds=1)
    )
    (shown,) = found.errors.values()
    assert problem in str(shown)
    assert isinstance(shown, SparkUnavailableError) == ("JVM" in problem)
    assert "Run this command again" in str(shown) or shown is error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(SparkCrashedError(5), SparkCrashedError), (ValueError(), SparkUnavailableError)],
)
def test_a_run_whose_own_batch_crashes_the_jvm_is_not_run_again_as_if_spark_were_away(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    def run(_: RunExecution) -> None:
        raise raised from Py4JNetworkError("sending or receiving")

    monkeypatch.setattr(RunExecution, "_run", run)
    with pytest.raises(expected):
        object.__new__(RunExecution).run()
