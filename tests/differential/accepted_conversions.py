"""The differences of converters to Kafka Connect's that are meant; see `accepted`."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from tests.differential.accepted import Accepted
from tests.differential.comparing import same, same_plain, unordered
from tests.differential.fitting import fits, ordered

from headrace.sdk.connectjson import connect_json, connect_schema, native_from_json

if TYPE_CHECKING:
    from tests.differential.comparing import Difference

Json = dict[str, Any]
_BOUND = 1 << 63
_NUMBER = re.compile(r"-?[0-9]{6,}")
_MOMENT = re.compile(r"[0-9][-:][0-9]")
_FEW_DAYS = 719_162  # as many before 1970 are the first of the year 1
_WRONG_SCHEMAS = (
    "Unknown schema type",
    "Array schema",
    "Schema must",
    "Struct schema",
    "Map schema",
)
_NOT_JSON = "Converting byte[] to Kafka Connect data failed"


def _message(side: Json) -> str:
    return str(side.get("error", {}).get("message") or "")


def _is_json(difference: Difference) -> bool:
    return str(difference.step["class"]).endswith("JsonConverter")


def _written(side: Json) -> Any:
    text = side.get("bytes")
    try:
        return None if text is None else json.loads(base64.b64decode(text))
    except ValueError:
        return text


def _given(difference: Difference) -> Any:
    """Return what JSON bytes that were read say. Raises ValueError if they are no JSON."""
    text = str((difference.record or {})["bytes"])
    header = difference.step["part"] == "header"
    hook = _without_repetition if header else dict
    tree = json.loads(text, parse_constant=_refuse, object_pairs_hook=hook)
    json.dumps(tree, ensure_ascii=False).encode()  # no half of a character
    return tree


def _without_repetition(pairs: list[tuple[str, Any]]) -> Json:
    if len(dict(pairs)) < len(pairs):
        message = "two members of one name"
        raise ValueError(message)
    return dict(pairs)


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def _null_is_a_tombstone(difference: Difference) -> bool:
    if difference.what != "bytes" or not _is_json(difference):
        return False
    theirs, ours = _written(difference.theirs), difference.ours["bytes"]
    payload = theirs["payload"] if isinstance(theirs, dict) and "payload" in theirs else theirs
    return ours is None and (payload is None or difference.record["value"] is None)  # type: ignore[index]


def _optional_as_a_whole(difference: Difference) -> bool:
    """Tell whether nothing differs but whether the whole is optional."""
    if difference.what == "value schema":
        sides = (difference.theirs["record"], difference.ours["record"])
        one, other = (side["value_schema"] for side in sides)
        return bool(other["optional"] and {**one, "optional": True} == other)
    theirs, ours = _written(difference.theirs), _written(difference.ours)
    if difference.what != "bytes" or not isinstance(theirs, dict) or not isinstance(ours, dict):
        return False
    if theirs.keys() != {"schema", "payload"} or ours.keys() != theirs.keys():
        return False
    schema = (difference.record or {})["value_schema"]
    payloads = [ordered(schema, side["payload"]) for side in (theirs, ours)]
    alike = same_plain(*payloads)
    return alike and {**theirs["schema"], "optional": True} == ours["schema"]


def _another_type(difference: Difference) -> bool:
    """Tell whether ours is an error, and rightly so: the payload is none of its schema."""
    if not _is_json(difference) or "error" not in difference.ours:
        return False
    try:
        tree = _given(difference)
    except ValueError:
        return False
    config = difference.step["config"]
    kept = config.get("replace.null.with.default") == "false"
    if (content := config.get("schema.content")) is not None:
        return not fits(_schema(json.loads(content), defaults=not kept), tree)
    enveloped = isinstance(tree, dict) and tree.keys() == {"schema", "payload"}
    if not enveloped or _message(difference.theirs).startswith(_WRONG_SCHEMAS):
        return False
    return not fits(_schema(tree["schema"], defaults=not kept), tree["payload"])


def _schema(tree: Any, *, defaults: bool) -> Any:
    """Give a schema, without its defaults where these do not count."""
    if defaults:
        return tree
    if isinstance(tree, list):
        return [_schema(item, defaults=False) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {k: _schema(item, defaults=False) for k, item in tree.items() if k != "default"}


def _given_schema_counts(difference: Difference) -> bool:
    """Tell whether Kafka has no schema, and ours is what the one that is given makes of it."""
    config = difference.step["config"]
    content, found = config.get("schema.content"), difference.ours.get("record")
    if content is None or config["schemas.enable"] != "false" or found is None:
        return False
    schema = connect_schema(json.loads(content))
    assert schema is not None
    bare = "value_schema" not in difference.theirs.get("record", {"value_schema": None})
    if not bare or connect_json(connect_schema(found["value_schema"])) != connect_json(schema):
        return False
    natives = (native_from_json(schema, tree) for tree in (_given(difference), found["value"]))
    return fits(json.loads(content), _given(difference)) and same(*map(unordered, natives))


def _digits_in_maps(difference: Difference) -> bool:
    """Tell whether Decimals in maps lack nothing but zeros at their ends."""
    schema = (difference.record or {}).get("value_schema", {})
    numeric = str(difference.step["config"].get("decimal.format")).upper() == "NUMERIC"
    if difference.what != "bytes" or not numeric or not _has_pairs(schema):
        return False
    theirs, ours = _written(difference.theirs), _written(difference.ours)
    if isinstance(theirs, dict) and theirs.keys() == {"schema", "payload"}:
        theirs, ours = theirs["payload"], ours["payload"]
    return _alike(ordered(schema, theirs), ordered(schema, ours))


def _has_pairs(schema: Any) -> bool:
    """Tell whether a schema has a map somewhere whose keys are no texts."""
    if isinstance(schema, list):
        return any(map(_has_pairs, schema))
    if not isinstance(schema, dict):
        return False
    pairs = schema.get("type") == "map" and schema["keys"]["type"] != "string"
    return pairs or any(map(_has_pairs, schema.values()))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)  # 1.0 is 1 here


def _names_the_field(difference: Difference) -> bool:
    theirs, ours = (_message(side) for side in (difference.theirs, difference.ours))
    return difference.what == "message" and ours.startswith(f"{theirs} in field ")


def _no_json(difference: Difference) -> bool:
    if not _is_json(difference) or not _message(difference.ours).startswith(_NOT_JSON):
        return False
    try:
        _given(difference)
    except ValueError:
        return True
    return False


def _beyond_64_bits(difference: Difference) -> bool:
    """Tell whether Kafka keeps the lowest 64 bits of a whole number, and ours its size."""
    found = _schemaless(difference)
    if difference.what == "header" and _is_json(difference):
        headers = (difference.theirs["header"], difference.ours["header"])
        trees = [json.loads(header["value"], strict=False) for header in headers]
    elif found is not None:
        trees = list(found)
    else:
        return False
    return _cut(_given(difference), *trees)


def _schemaless(difference: Difference) -> tuple[Any, Any] | None:
    """Return two values that differ and of which Kafka's has no schema."""
    theirs, ours = (side.get("record") for side in (difference.theirs, difference.ours))
    if difference.what != "value" or theirs is None or ours is None:
        return None
    return None if "value_schema" in theirs else (theirs["value"], ours["value"])


def _cut(given: Any, theirs: Any, ours: Any) -> bool:
    if isinstance(given, dict) and isinstance(ours, dict):
        return all(_cut(item, theirs[name], ours.get(name)) for name, item in given.items())
    if isinstance(given, list) and isinstance(ours, list) and len(given) == len(ours):
        return all(map(_cut, given, theirs, ours))
    if type(given) is int and not -_BOUND <= given < _BOUND:
        return theirs == (given + _BOUND) % (2 * _BOUND) - _BOUND and float(ours) == float(
            given
        )
    return _says(theirs, ours)


def _inferred(difference: Difference) -> bool:
    """Tell whether there is no schema, and ours says the same with one type for each name."""
    found = _schemaless(difference)
    return found is not None and _says(*found)


def _says(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, str) and not isinstance(theirs, str):
        return bool(json.loads(ours) == theirs)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(_says(item, ours.get(name)) for name, item in theirs.items())
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(_says, theirs, ours))
    if ours is None:  # an object of which nothing is known
        return theirs is None or (
            isinstance(theirs, dict) and not any(item is not None for item in theirs.values())
        )
    return bool(theirs == ours)


def _more_replacements(difference: Difference) -> bool:
    """Tell whether two texts differ in nothing but how many characters stand for bad bytes."""
    theirs, ours = (side.get("record", {}) for side in (difference.theirs, difference.ours))
    if difference.what != "value" or not str(difference.step["class"]).endswith(
        ".StringConverter"
    ):
        return False
    one, other = (re.sub("\ufffd+", "\ufffd", str(side["value"])) for side in (theirs, ours))
    return one == other and "\ufffd" in one


def _far_from_now(difference: Difference) -> bool:
    """Tell whether a list of days and a number stays a text: no day has that number."""
    theirs, ours = (side.get("header") for side in (difference.theirs, difference.ours))
    if theirs is None or ours is None or theirs["type"] not in {"array", "map"}:
        return False
    text = str((difference.record or {})["bytes"])
    far = any(abs(float(number)) > _FEW_DAYS for number in _NUMBER.findall(text))
    return (
        ours["type"] == "string"
        and ours["value"] == text
        and far
        and bool(_MOMENT.search(text))
    )


def _nothing_in_it(difference: Difference) -> bool:
    if not _message(difference.ours).startswith(("A JSON object without", "A JSON object has")):
        return False
    tree = difference.theirs["record"]["value"]
    return tree == {} or (isinstance(tree, dict) and "" in tree)


ACCEPTED_CONVERSIONS: tuple[Accepted, ...] = (
    Accepted("A null is a tombstone in JSON", _null_is_a_tombstone),
    Accepted("A key or value may always be null", _optional_as_a_whole),
    Accepted("A payload of another type is a bad record", _another_type),
    Accepted("A schema that is given counts", _given_schema_counts),
    Accepted("A Decimal in a map may lose zeros", _digits_in_maps),
    Accepted("A message names the field", _names_the_field),
    Accepted("A text that is no JSON is a bad record", _no_json),
    Accepted("JSON without schema gets one", _inferred),
    Accepted("A number of more than 64 bits is not cut", _beyond_64_bits),
    Accepted("Bytes that are no UTF-8", _more_replacements),
    Accepted("A moment is in the years 1 to 9999", _far_from_now),
    Accepted("An object needs fields with names", _nothing_in_it),
)


def is_accepted_conversion(difference: Difference) -> bool:
    """Tell whether a difference is meant."""
    return any(accepted.covers(difference) for accepted in ACCEPTED_CONVERSIONS)
