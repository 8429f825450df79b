"""What made a batch is compared as far as it is known."""

import pytest

from headrace.model import Fingerprint
from headrace.sdk import Mark, StateError

NOW = Fingerprint("abc", {"schema": "1", "header": "2"})


def stored(fingerprint: Fingerprint) -> Fingerprint:
    return Fingerprint.of_receipt(Mark("c-0", 1, 1).receipt(fingerprint.figures()))


@pytest.mark.parametrize(
    "before",
    [
        NOW,
        Fingerprint("abc"),  # as earlier versions have stored it
        Fingerprint("", {"schema": "1", "header": "2"}),
        Fingerprint(),
    ],
)
def test_what_is_equal_or_not_known_is_let_through(before: Fingerprint) -> None:
    assert stored(before) == before
    NOW.require_same(stored(before), "a sink")
    before.require_same(stored(NOW), "a sink")


def test_another_chain_is_an_error() -> None:
    with pytest.raises(StateError, match="in a sink, written with other transforms") as refused:
        NOW.require_same(stored(Fingerprint("abd", NOW.source)), "a sink")
    assert "Restore their previous values" in refused.value.fix


def test_keys_with_other_values_are_named() -> None:
    before = stored(Fingerprint("abc", {"schema": "0", "quote": "3", "header": "2"}))
    with pytest.raises(StateError, match="source's quote and schema") as refused:
        NOW.require_same(before, "a sink")
    assert "Restore their previous values" in refused.value.fix
    with pytest.raises(StateError, match="source's header and schema"):
        NOW.require_same(stored(Fingerprint("abc", {})), "a sink")


def test_what_divides_a_batch_is_the_source_too() -> None:
    routing = NOW.to_text()
    Fingerprint.require_same_routing(routing, routing)
    Fingerprint.require_same_routing("", "")
    Fingerprint.require_same_routing(routing, "abc")  # as earlier versions have stored it
    for other in ("", "abd", Fingerprint("abd", NOW.source).to_text()):
        with pytest.raises(StateError, match="transforms or converters"):
            Fingerprint.require_same_routing(routing, other)
    with pytest.raises(StateError, match="source's header") as refused:
        Fingerprint.require_same_routing(routing, Fingerprint("abc", {"schema": "1"}).to_text())
    assert "Restore their previous values" in refused.value.fix
