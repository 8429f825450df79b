"""The differences to Kafka Connect that are meant, each with its reason.

`docs/explanation/kafka-connect-differences.md` says the same to users; a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.differential.comparing import header_tree, same, unordered

from headrace.sdk import RecordError
from headrace.sdk.connectjson import connect_json, connect_schema, native_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.differential.comparing import Difference

Json = dict[str, Any]
_PARTS = ("key", "value")
# Java counts days before this moment's by the Julian calendar.
_GREGORIAN_MILLIS = -12_219_292_800_000
_DAY_MILLIS = 86_400_000
_MILLIS = {
    "seconds": 1_000,
    "milliseconds": 1,
    "microseconds": 0.001,
    "nanoseconds": 0.000_001,
    "days": _DAY_MILLIS,
}


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
    return looser(_full(theirs), _full(ours))


def _full(schema: Json) -> Any:
    return connect_json(connect_schema(schema))


def looser(theirs: Any, ours: Any) -> bool:
    """Tell whether ours is the same schema, but for being optional where theirs is not."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(
            (theirs[name] is False and ours[name] is True)
            if name == "optional" and theirs[name] != ours[name]
            else looser(theirs[name], ours[name])
            for name in theirs
        )
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(looser, theirs, ours))
    return bool(theirs == ours)


def _renames(difference: Difference) -> dict[str, str]:
    pairs = difference.step["config"].get("renames", "").split(",")
    return dict(pair.split(":") for pair in pairs if pair)


def _renamed_alike(difference: Difference) -> bool:
    """Tell whether nothing differs but which of the fields of one name is left."""
    found = _records(difference)
    if _transform(difference) != "ReplaceField" or found is None or difference.record is None:
        return False
    part = _part(difference)
    if f"{part}_schema" in difference.record or difference.what != part:
        return False
    sources = _sources(difference, difference.record[part])
    theirs, ours = (side[part] for side in found)
    left = {name for name, item in ours.items() if item is not None or name in sources}
    return theirs.keys() == left == sources.keys() and all(
        any(same(side[name], item) for item in items)
        for side in (theirs, ours)
        for name, items in sources.items()
    )


def _sources(difference: Difference, given: Json) -> dict[str, list[Any]]:
    """Return for each name that comes out the values that may be meant by it."""
    config = difference.step["config"]
    include, exclude = (_listed(config, key) for key in ("include", "exclude"))
    renames = _renames(difference)
    found: dict[str, list[Any]] = {}
    for name, item in given.items():
        if name not in exclude and (not include or name in include):
            found.setdefault(renames.get(name, name), []).append(item)
    return found


def _listed(config: Json, key: str) -> list[str]:
    return [name for name in str(config.get(key, "")).split(",") if name]


def _part(difference: Difference) -> str:
    return "key" if difference.step["class"].endswith("$Key") else "value"


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


def _early_day(difference: Difference) -> bool:
    """Tell whether a day before 1582-10-15 was written as a text."""
    if difference.record is None or _records(difference) is None:
        return False
    if _transform(difference) == "TimestampRouter":
        early = (difference.record["timestamp"] or 0) < _GREGORIAN_MILLIS
        return difference.what == "topic" and early
    if _transform(difference) != "TimestampConverter" or difference.what not in _PARTS:
        return False
    millis = _millis_given(difference)
    texts = difference.step["config"]["target.type"] == "string"
    return texts and millis is not None and millis < _GREGORIAN_MILLIS


def _millis_given(difference: Difference) -> int | None:
    """Return the moment that TimestampConverter was given as a number."""
    config, part = difference.step["config"], difference.what
    record = difference.record or {}
    given, schema = record[part], record.get(f"{part}_schema") or {}
    if name := config.get("field"):
        given = given.get(name)
        fields = schema.get("fields", ())
        schema = next((field for field in fields if field["field"] == name), {})
    given = schema.get("default") if given is None else given
    if type(given) is not int:
        return None
    if str(schema.get("name")).endswith(".Date"):
        return given * _DAY_MILLIS
    unit = "milliseconds" if "name" in schema else config.get("unix.precision", "milliseconds")
    return int(given * _MILLIS[unit])


def _record_in_message(difference: Difference) -> bool:
    start = "Timestamp missing on record: "
    return difference.what == "message" and all(
        (side["error"]["message"] or "").startswith(start)
        for side in (difference.theirs, difference.ours)
    )


def _null_pointer_of_java(difference: Difference) -> bool:
    error = difference.theirs.get("error", {})
    return difference.what == "message" and error["class"] == "java.lang.NullPointerException"


def _first_of_several_faults(difference: Difference) -> bool:
    """Tell whether a record without schema may have more than one fault."""
    config = difference.step["config"]
    several = "," in config.get(
        {"Cast": "spec", "MaskField": "fields"}.get(_transform(difference), ""), ""
    )
    schema = (difference.record or {}).get(f"{_part(difference)}_schema")
    return several and difference.what == "message" and schema is None


def _told_at_the_start(difference: Difference) -> bool:
    message = difference.ours.get("error", {}).get("message", "")
    key = {"RegexRouter": "replacement: No group", "TimestampRouter": "timestamp.format: "}
    problem = key.get(_transform(difference))
    return bool(problem and difference.what == "config" and problem in message)


def _weeks_are_not_read(difference: Difference) -> bool:
    message = difference.ours.get("error", {}).get("message", "")
    reads = "Timestamps cannot be parsed with" in message
    return _transform(difference) == "TimestampConverter" and reads


def _out_of_range(difference: Difference) -> bool:
    message = difference.ours.get("error", {}).get("message", "")
    told = re.match(r"The timestamp .* is out of range\Z", message, re.DOTALL)
    # So many digits that the text counts on to a year that Spark has not.
    digits = re.match(r"Could not parse timestamp: value \(.*[0-9]{6}", message, re.DOTALL)
    converter = _transform(difference) == "TimestampConverter"
    return converter and "record" in difference.theirs and bool(told or digits)


def _moments_in_headers(difference: Difference) -> bool:
    found = _records(difference)
    if found is None or _transform(difference) != "HeaderFrom" or difference.what != "headers":
        return False
    theirs, ours = (
        [header_tree(header, moments=False) for header in side["headers"]] for side in found
    )
    return theirs == ours


def _renamed_onto_one_that_stays(difference: Difference) -> bool:
    """Tell whether Kafka takes a field that is left out for one whose name it was to get."""
    if _transform(difference) != "ReplaceField" or difference.record is None:
        return False
    part = _part(difference)
    schema = difference.record.get(f"{part}_schema")
    if schema is None:
        return False
    names = {field["field"] for field in schema.get("fields", ())}
    taken = names & set(_renames(difference).values())
    if difference.what == "error but record":
        return bool(taken) and difference.theirs["error"]["class"].endswith("DataException")
    found = _records(difference)
    if found is None or difference.what != part:
        return False
    theirs, ours = (side[part] for side in found)
    return {name for name in ours if not same(theirs[name], ours[name])} <= taken


def _named_after_its_cast(difference: Difference) -> bool:
    error = difference.theirs.get("error", {})
    return (
        _transform(difference) == "Cast"
        and "record" in difference.ours
        and error.get("message") == "Invalid default value"
    )


def _offset_of_a_source(difference: Difference) -> bool:
    message = difference.theirs.get("error", {}).get("message") or ""
    return _transform(difference) == "InsertField" and message.startswith(
        "Only SinkRecord supported"
    )


def _one_type_for_a_name(difference: Difference) -> bool:
    found = _records(difference)
    part = difference.what
    if _transform(difference) != "InsertField" or found is None or part not in _PARTS:
        return False
    theirs, ours = (side[part] for side in found)
    if f"{part}_schema" in found[0] or not isinstance(theirs, dict):
        return False
    # What a record may lack: the offset is there for all records of a sink.
    keys = ("partition.field", "timestamp.field")
    config = difference.step["config"]
    lacking = {str(config.get(key, "")).rstrip("!?") for key in keys}
    differing = {
        name for name in ours if name not in theirs or not same(theirs[name], ours[name])
    }
    nothing = all(ours[name] is None for name in differing)
    return theirs.keys() <= ours.keys() and differing <= lacking and nothing


def _spared_with_the_others(difference: Difference) -> bool:
    if "predicate" not in difference.step:
        return False
    if "the predicate skips the record" in difference.ours.get("error", {}).get("message", ""):
        return "record" in difference.theirs
    found = _records(difference)
    if found is None or not difference.what.startswith(_PARTS):
        return False
    return all(_grown(*found, part) for part in _PARTS)


def _grown(theirs: Json, ours: Json, part: str) -> bool:
    """Tell whether ours is theirs with more fields, all null, or wider numbers."""
    try:
        one, other = (_native(side, part) for side in (theirs, ours))
    except RecordError:
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        more = [item for name, item in other.items() if name not in one]
        kept = all(name in other and _alike(one[name], other[name]) for name in one)
        return kept and not any(item is not None for item in more)
    return _alike(one, other)


def _alike(one: Any, other: Any) -> bool:
    numbers = type(one) is int and type(other) is float
    return bool(one == other) if numbers else same(one, other)


def _native(side: Json, part: str) -> Any:
    schema = connect_schema(side.get(f"{part}_schema"))
    return side[part] if schema is None else unordered(native_from_json(schema, side[part]))


ACCEPTED: tuple[Accepted, ...] = (
    Accepted("A null takes the stream's new schema", _null_takes_the_new_schema),
    Accepted("What may be null stays optional", _optional_around_it),
    Accepted("Two fields without schema get one name", _renamed_alike),
    Accepted("A rename onto a field that stays", _renamed_onto_one_that_stays),
    Accepted("Digits of other scripts are no digits", _digits_of_other_scripts),
    Accepted("A logical type that is cast has a plain schema", _named_after_its_cast),
    Accepted(
        "A field without schema is null where it would be absent", _null_instead_of_absent
    ),
    Accepted("A field without schema has one type", _one_type_for_a_name),
    Accepted("A source's records may have an offset", _offset_of_a_source),
    Accepted("What a predicate spares has the schema of the others", _spared_with_the_others),
    Accepted("Days before 1582-10-15 are of the same calendar", _early_day),
    Accepted("A timestamp ends where Spark's ends", _out_of_range),
    Accepted("Weeks and eras are written but not read", _weeks_are_not_read),
    Accepted("A moment in a header has the form of its type", _moments_in_headers),
    Accepted("A message does not repeat the record", _record_in_message),
    Accepted("A message does not name Java's parts", _null_pointer_of_java),
    Accepted("Of several faults another may be told", _first_of_several_faults),
    Accepted("A wrong pattern is told at the start", _told_at_the_start),
)


def is_accepted(difference: Difference) -> bool:
    """Tell whether a difference is meant."""
    return any(accepted.covers(difference) for accepted in ACCEPTED)
