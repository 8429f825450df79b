"""What is served is right in both formats, whatever names connectors have."""

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open,
)
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from tests.unit.metrics.told import HOSTILE, told

from headrace.metrics import METRICS, Exposition

OPEN = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"


PLAIN = (
    "# HELP headrace_task_retries_total Steps that failed temporarily and were retried.\n"
    "# TYPE headrace_task_retries_total counter\n"
    'headrace_task_retries_total{connector="orders",task="0"} 1.0\n'
    'headrace_task_retries_total{connector="'
    'a\\"b\\\\c\\nheadrace_forged 1\r\u2028{x=\\"y\\"} é",task="0"} 1.0\n'
)


@pytest.mark.parametrize("accept", [OPEN, "", "*/*"])
def test_a_metric_is_shown_in_the_format_that_is_asked_for(accept):
    body, content_type = Exposition(told()).render(accept)
    assert ("openmetrics" in content_type) == (accept == OPEN)
    header, total = ("headrace_task_retries", "headrace_task_retries_total")
    wanted = PLAIN
    if accept == OPEN:
        wanted = wanted.replace(f"HELP {total}", f"HELP {header}")
        wanted = wanted.replace(f"TYPE {total}", f"TYPE {header}")
    assert wanted in body.decode()
    assert body.endswith(b"# EOF\n") == (accept == OPEN)


@pytest.mark.parametrize("kind", ["histogram", "summary"])
def test_what_is_observed_has_a_count_and_a_sum(kind):
    families = list(parse_open(Exposition(told()).render(OPEN)[0].decode()))
    (family,) = [family for family in families if family.type == kind]
    ends = {sample.name.removeprefix(family.name) for sample in family.samples}
    assert ends == {"_count", "_sum"} | ({"_bucket"} if kind == "histogram" else set())


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
