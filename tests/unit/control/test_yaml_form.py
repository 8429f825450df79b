"""What our own form of a definition says when it is written as Kafka Connect's."""

import json
from pathlib import Path

import pytest

from headrace.control import read_definitions, served
from headrace.control.connector_settings import DEAD_LETTERS
from headrace.plugins import Registry
from headrace.sdk import ConfigErrors

MISPLACED = """\
name: p
source: {connector: datagen}
topic: p
predicates: {even: {type: Condition, condition: "id % 2 = 0"}}
transforms: [{type: MaskField, fields: [id], predicate: even}]
"""


def test_predicates_outside_of_transforms_are_told_where_they_belong(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(MISPLACED)
    with pytest.raises(ConfigErrors) as told:
        read_definitions(file, Registry().reads)
    (error,) = told.value.errors
    assert error.field == "predicates"
    assert error.fix == (
        'Write it into the transform, as predicate: "id > 7", or as a section with a type.'
    )


def test_a_misspelt_key_at_the_top_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("nmae: p\nsuorce: datagen\ntopic: p\n")
    with pytest.raises(ConfigErrors) as told:
        read_definitions(file, Registry().reads)
    (error,) = told.value.errors
    assert (error.field, error.fix) == ("name", "Rename nmae to name.")


@pytest.mark.parametrize(
    ("keys", "topic"),
    [
        ({"errors.tolerance": "all"}, "p.dlq"),
        ({"errors.tolerance": "all", DEAD_LETTERS: "bad"}, "bad"),
        ({"errors.tolerance": "all", DEAD_LETTERS: ""}, ""),
        ({}, None),
    ],
)
def test_a_server_gets_the_dead_letter_topic_that_a_run_has(
    keys: dict[str, str], topic: str | None
) -> None:
    document = {"name": "p", "source": "datagen", "topic": "t", **keys}
    [found] = served([document], Registry())
    assert found.config.get(DEAD_LETTERS) == topic


LISTED_MAPS = """\
name: p
topic: t
sink:
  connector: noop
  rules:
    - from: [a, b]
      since: 2026-01-31
      deep: {on: true, off: null}
    - from: "ü*"
  names: [x, y]
"""


def test_a_list_of_maps_is_json_with_what_stands_in_it(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(LISTED_MAPS)
    [found] = read_definitions(file, Registry().reads)
    config = found.sinks[0].config
    assert json.loads(config["rules"]) == [
        {"from": ["a", "b"], "since": "2026-01-31", "deep": {"on": True, "off": None}},
        {"from": "ü*"},
    ]
    assert config["names"] == "x,y"


def test_a_list_of_maps_cannot_hold_what_json_has_no_number_for(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\ntopic: t\nsink: {connector: noop, rules: [{a: .nan}]}\n")
    with pytest.raises(ConfigErrors, match="no NaN"):
        read_definitions(file, Registry().reads)
