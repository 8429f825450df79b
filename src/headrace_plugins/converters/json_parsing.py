"""Parses arrays of JSON texts: as columns at once, or one by one where that cannot be."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as columns

# Each text stands in a list of its own, and that in an object: no text can end another's.
_OPEN, _CLOSE = b'{"v":[', b"]}"
_NAMED = (b"NaN", b"Inf")
_NO_NUMBER = re.compile(rb"[\[{:,\s-](?:NaN|Inf)")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_SPACES = frozenset(" \t\r\n")
_ROOM = 1024  # the parser wants a block larger than what it reads


def parsed(texts: pa.Array, type_: pa.DataType | None, *, infer: bool) -> pa.Array | None:
    """Parse texts into one array; None when some text is no JSON or does not fit.

    Args:
        texts: Of type binary, without nulls.
        type_: The type to give; None infers it.
        infer: Whether fields that the type lacks are inferred; they are left out else.
    """
    if not len(texts):
        return pa.array([], type_ or pa.null())
    if not _is_utf8(texts):
        return None
    one = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    body = pc.binary_join(one, _CLOSE + b"\n" + _OPEN)[0].as_buffer().to_pybytes()
    body = b"".join((_OPEN, body, _CLOSE))
    if body.count(b"\n") != len(texts) - 1 or b"\r" in body:
        lines = pc.replace_substring_regex(texts.cast(pa.string()), "[\r\n]", " ")
        return parsed(lines.cast(pa.binary()), type_, infer=infer)
    table = _read(body, type_, infer=infer)
    if table is None or table.num_rows != len(texts):
        return None
    # One block is one chunk. Joining chunks fails for lists of nothing but nulls.
    lists = table.column("v").chunk(0)
    if not pa.types.is_list(lists.type) or not pc.all(_single(lists)).as_py():
        return None
    values = lists.flatten()
    try:
        # The parser loses count of lists that hold nothing but nulls.
        values.validate()
    except pa.ArrowInvalid:
        return None
    return values


def _read(body: bytes, type_: pa.DataType | None, *, infer: bool) -> pa.Table | None:
    if any(word in body and _NO_NUMBER.search(body) for word in _NAMED):
        return None  # the parser takes these words for numbers
    schema = None if type_ is None else pa.schema([("v", pa.list_(type_))])
    try:
        return columns.read_json(
            pa.BufferReader(body),
            columns.ReadOptions(use_threads=False, block_size=len(body) + _ROOM),
            columns.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if infer else "ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None


def _single(lists: pa.Array) -> pa.Array:
    return pc.equal(pc.fill_null(pc.list_value_length(lists), 0), 1)


def loaded(text: bytes, *, exact: bool = False) -> Any:
    """Parse one text as Jackson does: UTF-8 only, and no NaN. Raises ValueError.

    Half a character, which is no text to Arrow either, is refused too.

    Args:
        text: The text.
        exact: Whether numbers with a point become Decimals.
    """
    number = Decimal if exact else float
    try:
        tree = json.loads(text.decode(), parse_constant=_refuse, parse_float=number)
    except RecursionError as error:
        message = "It is nested too deeply."
        raise ValueError(message) from error
    if _HALF.search(text):
        json.dumps(tree, ensure_ascii=False, default=str).encode()  # refuses half a character
    return tree


def members(text: str) -> dict[str, str]:
    """Return the texts of the values of a JSON object, unparsed. Raises ValueError."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    found: dict[str, str] = {}
    place = _past(text, 0, "{")
    while text[place : place + 1] != "}":
        name, place = decoder.raw_decode(text, place)
        start = _past(text, _space(text, place), ":")
        _, end = decoder.raw_decode(text, start)
        found[name] = text[start:end]
        place = _space(text, end)
        if text[place : place + 1] == ",":
            place = _space(text, place + 1)
    return found


def _space(text: str, place: int) -> int:
    while text[place : place + 1] in _SPACES:
        place += 1
    return place


def _past(text: str, place: int, sign: str) -> int:
    place = _space(text, place)
    if text[place : place + 1] != sign:
        message = f"Expecting {sign!r}: char {place}"
        raise ValueError(message)
    return _space(text, place + 1)


def _refuse(word: str) -> NoReturn:
    message = f"{word} is no JSON."
    raise ValueError(message)


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
