"""What differs between the changes that Debezium gives and those that Headrace gives.

Differences by design, which `differences` does not report:

- Of a deleted row whose table has another replica identity than FULL, the log has the key only.
  Debezium fills ``before`` up with nulls, or with values of its own where a column is NOT NULL.
  Only the columns of the key are compared.
- A value that the log has not got is a placeholder in Debezium, which `canonical` knows; the
  other side reads it from the table, as it is by then.
- In a transaction that adds, drops or renames columns between changes of their table, all of
  these changes have the columns of before and after, which are null where there were none.
- ``ts_ms``, ``lsn`` and what else is in ``source``, unless it is asked for.

What is found to be by design later is added here, and to `DESIGNED`.

What Debezium 3.6.1 gives for these is not what the table holds, so histories leave them out:
the days ``infinity`` and those before Christ (a snapshot has others than the stream), NaN and
infinite numerics (null), numerics of a negative scale (the wrong number), and arrays of more
than one dimension (nulls). Ranges of timestamptz are left out too, as their texts depend on the
time zone of a session.
Intervals are off by less than a microsecond, for which `canonical` rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.debezium.events import UNCHANGED, Kind, canonical_row
from tests.debezium.replay import column_kinds

Change = Mapping[str, Any]
_ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    """Something that the sides do not have alike.

    Args:
        topic: Of which topic.
        key: Of which key, as text; empty where there is none.
        number: Of which of the key's changes, counted from 0.
        field: What differs: ``op``, ``after.name``, ``txId``; or ``change``, where one side
            has no more changes.
        ours: What Headrace has.
        theirs: What Debezium has.
        op: What Debezium's change does; None where it has no more.
    """

    topic: str
    key: str
    number: int
    field: str
    ours: Any
    theirs: Any
    op: str | None = None


_IN_ONE_TRANSACTION = "a transaction that changes columns has those of before and after, null"
DESIGNED: dict[str, Callable[[Difference], bool]] = {
    "a value that the log has not got is read from the table, or left out": lambda found: (
        found.theirs is UNCHANGED
    ),
    _IN_ONE_TRANSACTION: lambda found: found.theirs == _ABSENT and found.ours is None,
}
"""Differences by design, each by a sentence."""


def differences(
    ours: Iterable[Change],
    theirs: Iterable[Change],
    *,
    full: Collection[str] = (),
    source: Collection[str] = (),
    designed: Collection[Callable[[Difference], bool]] = tuple(DESIGNED.values()),
) -> list[Difference]:
    """Return what differs: for each key, its changes in their order; for no key, the table's.

    Args:
        ours: Changes with ``topic``, ``key``, ``before``, ``after`` (dicts of values in any
            form that `canonical` takes, or None) and ``op``.
        theirs: Debezium's, as `normalised` gives them.
        full: The topics whose tables have REPLICA IDENTITY FULL.
        source: What is compared beside: ``txId``, ``lsn``, ``ts_ms``.
        designed: Says of each difference whether it is by design.
    """
    theirs = list(theirs)
    kinds = column_kinds(theirs)
    mine = _by_key(_canonical(change, kinds) for change in ours)
    others = _by_key(theirs)
    found: list[Difference] = []
    for topic, key in mine.keys() | others.keys():
        pairs = zip_longest(mine.get((topic, key), ()), others.get((topic, key), ()))
        for number, (one, other) in enumerate(pairs):
            op = other["op"] if other is not None else None
            found += [
                Difference(topic, key, number, *parts, op)
                for parts in _differing(one, other, topic in full, source)
            ]
    found.sort(key=lambda each: (each.topic, each.key, each.number, each.field))
    return [each for each in found if not any(accepts(each) for accepts in designed)]


def _canonical(change: Change, kinds: Mapping[str, Mapping[str, Kind]]) -> Change:
    of_topic = kinds.get(change["topic"], {})
    rows = {part: canonical_row(of_topic, change[part]) for part in ("key", "before", "after")}
    return {**change, **rows}


def _by_key(changes: Iterable[Change]) -> dict[tuple[str, str], list[Change]]:
    found: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in changes:
        key = change["key"]
        text = "" if key is None else repr(sorted(key.items()))
        found[change["topic"], text].append(change)
    return found


def _differing(
    one: Change | None, other: Change | None, is_full: bool, source: Collection[str]
) -> Iterable[tuple[str, Any, Any]]:
    if one is None or other is None:
        yield "change", one, other
        return
    for name in ("op", *source):
        if one[name] != other[name]:
            yield name, one[name], other[name]
    for part in ("before", "after"):
        names: Collection[str] | None = None
        if part == "before" and other["op"] == "d" and not is_full:
            names = other["key"] or ()
        yield from _differing_rows(part, one[part], other[part], names)


def _differing_rows(
    part: str,
    one: Mapping[str, Any] | None,
    other: Mapping[str, Any] | None,
    names: Collection[str] | None,
) -> Iterable[tuple[str, Any, Any]]:
    if one is None or other is None:
        if one is not other:
            yield part, one, other
        return
    for name in sorted(one.keys() | other.keys()) if names is None else names:
        mine, theirs = one.get(name, _ABSENT), other.get(name, _ABSENT)
        if mine != theirs:
            yield f"{part}.{name}", mine, theirs
