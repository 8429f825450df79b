"""``errors.retry.timeout``: 0 is for not at all, -1 for ever, and a run that is to end ends."""

from datetime import timedelta

import pytest

from headrace.control import plan_tasks
from headrace.model import Definition, PluginSpec
from headrace.plugins import Registry
from headrace.runtime.tasks import backoff_of


@pytest.mark.parametrize(
    ("given", "served", "once"),
    [
        (None, None, 600),
        ("-1", None, None),
        ("0", 0, 0),
        ("5000", 5, 5),
    ],
)
def test_a_task_tries_again_for_as_long_as_its_definition_says(
    given: str | None, served: float | None, once: float | None
) -> None:
    common = {} if given is None else {"errors.retry.timeout": given}
    sinks = (PluginSpec("noop", {}),)
    definition = Definition("copy", sinks=sinks, topics=("numbers",), common=common)
    (plan,) = plan_tasks(definition, Registry(), None, lambda _: ())  # type: ignore[arg-type]  # a sink asks nothing
    for ends, seconds in ((False, served), (True, once)):
        timeout = None if seconds is None else timedelta(seconds=seconds)
        assert backoff_of(plan, once=ends).timeout == timeout
