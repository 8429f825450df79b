"""The dashboard for Grafana asks for what is there, by the labels that it has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from tests.unit.metrics.test_sampling import Jvm, sampler
from tests.unit.metrics.told import connector, told

from headrace.metrics import Exposition
from headrace.model import ConnectorState

FILE = Path(__file__).parents[3] / "deploy" / "grafana" / "headrace.json"
DASHBOARD = json.loads(FILE.read_text())
_SELECTOR = re.compile(r"(headrace_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


def targets() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield from panel.get("targets", [])


EXPRESSIONS = sorted({target["expr"] for target in targets()})


@pytest.fixture(scope="module")
def series() -> dict[str, list[dict[str, str]]]:
    """Return the labels of each series of a real exposition, by name."""
    book = told()
    book.connector_changed(connector("failed"), ConnectorState.FAILED, [])
    sampler(book, Jvm).look()
    found: dict[str, list[dict[str, str]]] = {}
    for family in parse(Exposition(book).render(None)[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_selector_finds_something(expression, series):
    selectors = _SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        assert name in series, name
        left = series[name]
        for label, operator, wanted in _MATCHER.findall(matchers):
            pattern = ".*" if wanted == "$connector" else wanted
            exact = re.escape(wanted) if operator == "=" else pattern
            left = [each for each in left if re.fullmatch(exact, each[label], re.DOTALL)]
        assert left, (name, matchers)


@pytest.mark.parametrize("target", list(targets()), ids=lambda each: each["expr"][:60])
def test_every_label_that_is_grouped_by_or_shown_is_there(target, series):
    expression = target["expr"]
    names = [name for name, _ in _SELECTOR.findall(expression)]
    kept = set.intersection(*({key for each in series[name] for key in each} for name in names))
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        asked = {label.strip() for label in group.split(",")}
        assert asked <= kept
        kept = asked
    if re.search(r"\b(sum|max|count)\(", expression):
        kept = set()
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept


def test_nothing_that_a_task_tells_is_left_out():
    asked = {name for each in EXPRESSIONS for name, _ in _SELECTOR.findall(each)}
    exposed = {family.name for family in parse(Exposition(told()).render(None)[0].decode())}
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked}
    unused = {name for name in exposed if name.startswith("headrace_task_")} - families
    assert unused == {"headrace_task_last_error_timestamp_seconds"}


def test_the_variables_ask_for_what_is_there(series):
    (asked,) = (
        variable["query"]["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    )
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked)
    assert found is not None
    metric, label = found.groups()
    assert all(label in each for each in series[metric])


def test_panels_have_their_own_ids_and_places():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(places)) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
