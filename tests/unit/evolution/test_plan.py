"""A target's schema follows that of its records as far as its policy lets it."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sdk.strategies import ROWS

from headrace.evolution import Move, reconcile, schema_changes
from headrace.model import SchemaChangeError
from headrace.sdk import Schema
from headrace.sdk.schema_evolution import EVOLUTION_KINDS, ChangeKind, EvolutionPolicy, Handling

INT, LONG = Schema.int32(optional=True), Schema.int64(optional=True)
TEXT = Schema.string(optional=True)
EVOLVE, LENIENT, IGNORE = Handling.EVOLVE, Handling.LENIENT, Handling.IGNORE
KNOWN = Schema.struct({"a": INT, "b": TEXT})


def shape(schema: Schema, sources: Move | None = None) -> dict[str, str]:
    return {f.name: f.schema.type.value for f in schema.fields}


def sources(move: Move) -> dict[str, str | None]:
    return {member.name: member.source for member in move.members}


CASES: list[tuple[ChangeKind, Handling, Schema, dict[str, str], dict[str, str | None]]] = [
    (
        ChangeKind.ADD,
        EVOLVE,
        Schema.struct({"a": INT, "c": Schema.int8(), "b": TEXT}),
        {"a": "INT32", "c": "INT8", "b": "STRING"},
        {"a": "a", "c": "c", "b": "b"},
    ),
    (
        ChangeKind.ADD,
        LENIENT,
        Schema.struct({"c": Schema.int8(), "a": INT, "b": TEXT}),
        {"c": "INT8", "a": "INT32", "b": "STRING"},
        {"c": "c", "a": "a", "b": "b"},
    ),
    (
        ChangeKind.ADD,
        IGNORE,
        Schema.struct({"c": Schema.int8(), "a": INT, "b": TEXT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.WIDEN,
        EVOLVE,
        Schema.struct({"a": LONG, "b": TEXT}),
        {"a": "INT64", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.WIDEN,
        IGNORE,
        Schema.struct({"a": LONG, "b": TEXT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.NARROW,
        EVOLVE,
        Schema.struct({"a": Schema.int8(), "b": TEXT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.RETYPE,
        EVOLVE,
        Schema.struct({"a": TEXT, "b": TEXT}),
        {"a": "STRING", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.RETYPE,
        LENIENT,
        Schema.struct({"a": TEXT, "b": TEXT}),
        {"a": "INT32", "a__string": "STRING", "b": "STRING"},
        {"a": None, "a__string": "a", "b": "b"},
    ),
    (
        ChangeKind.RETYPE,
        IGNORE,
        Schema.struct({"a": TEXT, "b": TEXT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
    (
        ChangeKind.RENAME,
        EVOLVE,
        Schema.struct({"a": INT, "new": TEXT}),
        {"a": "INT32", "new": "STRING"},
        {"a": "a", "new": "new"},
    ),
    (
        ChangeKind.RENAME,
        LENIENT,
        Schema.struct({"a": INT, "new": TEXT}),
        {"a": "INT32", "b": "STRING", "new": "STRING"},
        {"a": "a", "b": "new", "new": "new"},
    ),
    (
        ChangeKind.RENAME,
        IGNORE,
        Schema.struct({"a": INT, "new": TEXT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "new"},
    ),
    (ChangeKind.DROP, EVOLVE, Schema.struct({"b": TEXT}), {"b": "STRING"}, {"b": "b"}),
    (
        ChangeKind.DROP,
        LENIENT,
        Schema.struct({"b": TEXT}),
        {"b": "STRING", "a": "INT32"},
        {"b": "b", "a": None},
    ),
    (
        ChangeKind.DROP,
        IGNORE,
        Schema.struct({"b": TEXT}),
        {"b": "STRING", "a": "INT32"},
        {"b": "b", "a": None},
    ),
    (
        ChangeKind.REORDER,
        EVOLVE,
        Schema.struct({"b": TEXT, "a": INT}),
        {"b": "STRING", "a": "INT32"},
        {"b": "b", "a": "a"},
    ),
    (
        ChangeKind.REORDER,
        LENIENT,
        Schema.struct({"b": TEXT, "a": INT}),
        {"a": "INT32", "b": "STRING"},
        {"a": "a", "b": "b"},
    ),
]


def policy(kind: ChangeKind, handling: Handling) -> EvolutionPolicy:
    return EvolutionPolicy(handlings={kind: handling}, renames={"b": "new"})


@pytest.mark.parametrize(("kind", "handling", "brought", "target", "taken"), CASES)
def test_each_kind_of_change_is_handled_as_its_policy_says(
    kind: ChangeKind,
    handling: Handling,
    brought: Schema,
    target: Mapping[str, str],
    taken: Mapping[str, Any],
) -> None:
    found = reconcile(KNOWN, brought, policy(kind, handling))
    assert shape(found.schema) == target
    assert list(shape(found.schema)) == list(target)
    assert sources(found.move) == taken
    assert [(h.change.kind, h.handling) for h in found.handled] == [(kind, handling)]


@pytest.mark.parametrize(
    ("kind", "brought"), {kind: brought for kind, _, brought, _, _ in CASES}.items()
)
def test_a_rejected_change_says_what_changed_and_what_to_set(
    kind: ChangeKind, brought: Schema
) -> None:
    with pytest.raises(SchemaChangeError) as caught:
        reconcile(KNOWN, brought, policy(kind, Handling.REJECT))
    assert caught.value.field == f"schema.evolution.{kind}"
    assert f"schema.evolution.{kind}" in caught.value.fix
    assert str(kind) in caught.value.problem
    assert "Nothing was written" in caught.value.problem


def test_a_required_field_without_a_default_cannot_go_unnoticed() -> None:
    known = Schema.struct({"a": Schema.int32(), "b": TEXT})
    brought = Schema.struct({"b": TEXT})
    with pytest.raises(SchemaChangeError, match="cannot be ignored"):
        reconcile(known, brought, EvolutionPolicy(IGNORE))
    lenient = reconcile(known, brought, EvolutionPolicy(LENIENT)).schema.field("a")
    assert lenient is not None
    assert lenient.schema.optional


def test_a_default_stands_for_a_field_that_is_ignored_to_be_missing() -> None:
    known = Schema.struct({"a": Schema.int32(default=7), "b": TEXT})
    found = reconcile(known, Schema.struct({"b": TEXT}), EvolutionPolicy(IGNORE))
    assert found.move.members[0].move == Move(None, Schema.int32(default=7))


def test_lenient_goes_on_with_both_names_of_a_renamed_field() -> None:
    lenient = EvolutionPolicy(LENIENT, renames={"b": "new"})
    brought = Schema.struct({"a": INT, "new": TEXT})
    first = reconcile(KNOWN, brought, lenient)
    again = reconcile(first.schema, brought, lenient)
    assert sources(again.move) == {"a": "a", "b": "new", "new": "new"}
    assert (again.schema, again.handled) == (first.schema, ())


def test_lenient_goes_on_with_both_types_of_a_field_and_back() -> None:
    lenient = EvolutionPolicy(LENIENT)
    brought = Schema.struct({"a": TEXT, "b": TEXT})
    first = reconcile(KNOWN, brought, lenient)
    again = reconcile(first.schema, brought, lenient)
    assert again.schema == first.schema
    back = reconcile(first.schema, KNOWN, lenient)
    assert sources(back.move) == {"a": "a", "b": "b", "a__string": None}
    assert back.handled == ()


def test_changes_inside_of_structs_arrays_and_maps_have_the_same_policies() -> None:
    inner = Schema.struct({"x": INT})
    known = Schema.struct(
        {"s": inner, "l": Schema.array(inner), "m": Schema.map(Schema.string(), inner)}
    )
    more = Schema.struct({"x": LONG, "y": TEXT})
    brought = Schema.struct(
        {"s": more, "l": Schema.array(more), "m": Schema.map(Schema.string(), more)}
    )
    found = reconcile(known, brought, EvolutionPolicy(handlings={ChangeKind.ADD: IGNORE}))
    assert {str(h.change) for h in found.handled} == {
        f"{what}"
        for path in ("s", "l element", "m value")
        for what in (f"widen {path}.x: INT -> BIGINT", f"add {path}.y STRING")
    }
    expected = Schema.struct({"x": LONG})
    assert found.schema.fields[0].schema == expected
    assert found.schema.fields[1].schema.value_schema == expected
    assert found.schema.fields[2].schema.value_schema == expected


POLICIES = st.builds(
    EvolutionPolicy,
    st.sampled_from(list(Handling)),
    st.dictionaries(st.sampled_from(EVOLUTION_KINDS), st.sampled_from(list(Handling))),
)


@given(ROWS, ROWS, POLICIES)
def test_only_a_rejected_kind_stops_and_what_is_taken_once_is_taken_again(
    known: Schema, brought: Schema, how: EvolutionPolicy
) -> None:
    kinds = {change.kind for change in schema_changes(known, brought)}
    try:
        found = reconcile(known, brought, how)
    except SchemaChangeError as error:
        named = {kind for kind in kinds if f"schema.evolution.{kind}" in error.fix}
        assert named
        assert {how.of(kind) for kind in named} <= {Handling.REJECT, IGNORE}
        return
    assert {h.change.kind for h in found.handled} <= kinds
    assert Handling.REJECT not in {h.handling for h in found.handled}
    again = reconcile(found.schema, brought, how)
    assert again.schema == found.schema


def test_a_field_that_a_topic_put_beside_another_is_no_added_one() -> None:
    beside = Schema.struct({"a": INT, "b": TEXT, "a__string": TEXT})
    handlings = {ChangeKind.RETYPE: LENIENT, ChangeKind.ADD: Handling.REJECT}
    found = reconcile(KNOWN, beside, EvolutionPolicy(handlings=handlings))
    assert sources(found.move) == {"a": "a", "b": "b", "a__string": "a__string"}


def test_policies_agree_on_the_kinds_that_they_handle_alike() -> None:
    one = EvolutionPolicy(IGNORE, renames={"a": "c"})
    two = EvolutionPolicy(IGNORE, {ChangeKind.DROP: Handling.REJECT}, {"a": "c"})
    agreed = EvolutionPolicy.agreed([one, two])
    assert (agreed.of(ChangeKind.ADD), agreed.of(ChangeKind.DROP)) == (IGNORE, EVOLVE)
    assert agreed.renames == {"a": "c"}
    assert EvolutionPolicy.agreed([one, EvolutionPolicy(IGNORE)]).renames == {}
    assert EvolutionPolicy.from_json(two.to_json()) == two
