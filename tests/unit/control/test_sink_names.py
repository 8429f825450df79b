"""A sink's name in marks goes with its target, whatever sinks are beside it."""

from itertools import permutations

import pytest

from headrace.control import SinkPlan
from headrace.runtime.tasks import sink_names
from headrace.sdk import SinkConnector
from headrace_plugins.connectors.console import ConsoleSink
from headrace_plugins.connectors.delta import DeltaSink
from headrace_plugins.connectors.file import FileSink


def plan(connector: type[SinkConnector], **config: str) -> SinkPlan:
    return SinkPlan(connector, config)


DELTA = plan(DeltaSink, path="/lake/orders")
OTHER_DELTA = plan(DeltaSink, path="/lake/customers")
FILE = plan(FileSink, path="/lake/orders")
CONSOLE = plan(ConsoleSink)


def test_names_do_not_depend_on_number_or_order():
    alone = {id(each): sink_names([each])[0] for each in (DELTA, OTHER_DELTA, FILE, CONSOLE)}
    assert len(set(alone.values())) == 4
    for plans in permutations((DELTA, OTHER_DELTA, FILE, CONSOLE)):
        assert sink_names(plans) == [alone[id(each)] for each in plans]


@pytest.mark.parametrize(
    "tuned", [plan(DeltaSink, path="file:///lake/orders", **{"optimize.interval.commits": "7"})]
)
def test_what_is_tuned_changes_no_name(tuned: SinkPlan):
    assert sink_names([tuned]) == sink_names([DELTA])


def test_equal_sinks_have_names_of_their_own():
    names = sink_names([DELTA, FILE, DELTA, DELTA])
    assert len(set(names)) == 4
    assert names[:2] == sink_names([DELTA, FILE])


def test_sinks_that_do_not_say_what_they_write_to_go_by_their_configurations():
    one = plan(ConsoleSink, limit="1")
    two = plan(ConsoleSink, limit="2")
    assert sink_names([one]) == sink_names([two])
    assert sink_names([one, two]) == sink_names([two, one])[::-1]
    assert len(set(sink_names([one, two]))) == 2
