"""What is served is what the library would say, in both formats, only sooner."""

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open,
)
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from tests.unit.metrics.told import HOSTILE, empty, run, told

from headrace.metrics import METRICS, Book, Exposition
from headrace.model import TaskId

OPEN = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"


class Library(Collector):
    """The values of a book as the library takes them."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def collect(self) -> Iterable[Family]:
        for metric in METRICS:
            family = Family(metric.name, metric.help, metric.kind.value)
            for sample in self.book.samples():
                if sample.metric is metric:
                    family.samples.append(
                        Sample(sample.name, dict(sample.labels), sample.value)
                    )
            if family.samples:
                yield family


@pytest.mark.parametrize(
    ("accept", "encoder"),
    [(OPEN, generate_open), ("", generate_latest), ("*/*", generate_latest)],
)
def test_the_text_is_the_librarys(accept, encoder):
    registry = CollectorRegistry()
    registry.register(Library(told()))
    body, content_type = Exposition(told()).render(accept)
    assert body.decode() == encoder(registry).decode()
    assert ("openmetrics" in content_type) == (accept == OPEN)


@pytest.mark.parametrize(("accept", "parse"), [(OPEN, parse_open), (None, parse_plain)])
def test_a_hostile_name_stays_one_label(accept, parse):
    body, _ = Exposition(told()).render(accept)
    samples = [s for family in parse(body.decode()) for s in family.samples]
    names = {s.labels["connector"] for s in samples if "connector" in s.labels}
    assert names == {"orders", HOSTILE}
    assert not [s for s in samples if "forged" in s.name]


def test_every_name_is_in_one_family_only_and_follows_the_rules():
    families = list(parse_open(Exposition(told()).render(OPEN)[0].decode()))
    assert len({family.name for family in families}) == len(families)
    known = {metric.name for metric in METRICS}
    assert {family.name for family in families} <= known
    for metric in METRICS:
        assert metric.name.startswith("headrace_")
        assert not metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_a_version_that_is_none_gets_plain_text():
    body, content_type = Exposition(told()).render("application/openmetrics-text;version=x")
    assert content_type.startswith("text/plain")
    assert list(parse_plain(body.decode()))


def test_a_scrape_writes_anew_only_what_has_changed():
    book = empty()
    tasks = [run(book, f"c{n}") for n in range(3)]
    first = {line: id(line) for line in book.texts()["headrace_task_state"]}
    book.expect_letters(TaskId("c0", 0), expected=False)
    book.state_changed(tasks[1], book._tasks[tasks[1]].state.FAILED, None)
    again = book.texts()["headrace_task_state"]
    kept = [line for line in again if first.get(line) == id(line)]
    assert len(kept) == 2
