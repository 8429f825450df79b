"""The differences to Kafka Connect that are meant, each with its reason.

`docs/explanation/kafka-connect-differences.md` says the same to users; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headrace.sdk.connectjson import connect_json, connect_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.differential.comparing import Difference

Json = dict[str, Any]
_PARTS = ("key", "value")


@dataclass(frozen=True)
class Accepted:
    """A difference that stays.

    Args:
        title: What the page calls it.
        covers: Tells the differences that are of this kind.
    """

    title: str
    covers: Callable[[Difference], bool]


def _transform(difference: Difference) -> str:
    return str(difference.step["class"]).rpartition(".")[2].partition("$")[0]


def _records(difference: Difference) -> tuple[Json, Json] | None:
    if "record" not in difference.theirs or "record" not in difference.ours:
        return None
    return difference.theirs["record"], difference.ours["record"]


def _null_takes_the_new_schema(difference: Difference) -> bool:
    found = _records(difference)
    if found is None or not difference.what.endswith("schema"):
        return False
    name = difference.what.split()[0].rstrip(":")
    return found[0][name] is None and found[1][name] is None


def _optional_around_it(difference: Difference) -> bool:
    found = _records(difference)
    if found is None or not difference.what.endswith(" schema"):
        return False
    theirs, ours = (side[f"{difference.what.split()[0]}_schema"] for side in found)
    return _looser(_full(theirs), _full(ours))


def _full(schema: Json) -> Any:
    return connect_json(connect_schema(schema))


def _looser(theirs: Any, ours: Any) -> bool:
    """Tell whether ours is the same schema, but for being optional where theirs is not."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(
            (theirs[name] is False and ours[name] is True)
            if name == "optional" and theirs[name] != ours[name]
            else _looser(theirs[name], ours[name])
            for name in theirs
        )
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(_looser, theirs, ours))
    return bool(theirs == ours)


def _renamed_alike(difference: Difference) -> bool:
    if _transform(difference) != "ReplaceField" or difference.record is None:
        return False
    part = "key" if difference.step["class"].endswith("$Key") else "value"
    if f"{part}_schema" in difference.record or difference.what != part:
        return False
    renames = dict(
        pair.split(":") for pair in difference.step["config"].get("renames", "").split(",")
    )
    names = [renames.get(name, name) for name in difference.record[part]]
    return len(set(names)) < len(names)


def _digits_of_other_scripts(difference: Difference) -> bool:
    return _transform(difference) == "Cast" and any(
        character.isdigit() and not character.isascii()
        for character in difference.ours.get("error", {}).get("message", "")
    )


def _null_instead_of_absent(difference: Difference) -> bool:
    found = _records(difference)
    if _transform(difference) != "InsertField" or found is None:
        return False
    part = difference.what
    theirs, ours = (side.get(part) for side in found)
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return False
    return f"{part}_schema" not in found[0] and theirs == {
        name: item for name, item in ours.items() if item is not None or name in theirs
    }


ACCEPTED: tuple[Accepted, ...] = (
    Accepted("A null takes the stream's new schema", _null_takes_the_new_schema),
    Accepted("What may be null stays optional", _optional_around_it),
    Accepted("Two fields without schema get one name", _renamed_alike),
    Accepted("Digits of other scripts are no digits", _digits_of_other_scripts),
    Accepted(
        "A field without schema is null where it would be absent", _null_instead_of_absent
    ),
)


def is_accepted(difference: Difference) -> bool:
    """Tell whether a difference is meant."""
    return any(accepted.covers(difference) for accepted in ACCEPTED)


OPEN: Mapping[str, str] = {
    "Cast": "values at the edge of what Java and Spark parse",
    "ExtractField": "a null whose schema lacks the field is an error in Kafka Connect",
    "HeaderFrom": "nested values as texts, and the error for a field that is missing",
    "InsertField": "a name that is taken, where the record is null or has nothing to insert",
    "InsertHeader": "literals beyond the range of a double",
    "MaskField": "which of several errors is told",
    "RegexRouter": "a replacement that names a group the expression has not",
    "SetSchemaMetadata": "an empty name",
    "TimestampConverter": "times before 1582 and short formats",
    "TimestampRouter": "times before 1582, and a topic format that Java refuses",
    "ValueToKey": "the message for a null with a schema",
}
"""The transforms that still differ, and in what; an entry goes when the difference does."""


def with_open_marked(transforms: Iterable[str]) -> list[Any]:
    """Return the transforms as parameters of a test; those that still differ may fail."""
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=OPEN[name], strict=False))
        if name in OPEN
        else name
        for name in sorted(transforms)
    ]
