"""Files that are one JSON document each, as lines of JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_DOCUMENT = 256 * 1024 * 1024
"""How large one may be, unpacked: it is parsed in the memory of one worker."""
_BLANK = re.compile(r"[ \t\r\n]*")
_BREAK = re.compile(r"[\r\n]")
# It only finds out where values end: digits need not be numbers.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def lines_of_document(text: str, *, whole: bool) -> list[tuple[int, str]]:
    """Return the records of a document, each in one line, and the number of its first, from 0.

    They are the items of an array, unless the document is to be one record as a ``whole``; any
    other value is the only one. Raises ValueError with what is wrong with it.
    """
    try:
        spans = list(_items(text) if not whole else _only(text))
    except RecursionError:
        message = "It is nested too deeply"
        raise ValueError(message) from None
    except json.JSONDecodeError as error:
        message = f"Invalid JSON: {error.msg}, in line {error.lineno}"
        raise ValueError(message) from None
    records, line, before = [], 0, 0
    for start, end in spans:
        line += text.count("\n", before, start)
        before = start
        # No text of JSON holds a line break, so it is between its parts.
        records.append((line, _BREAK.sub(" ", text[start:end])))
    return records


def first_items(sample: bytes) -> list[str]:
    """Return the records of a document up to the first that is not whole."""
    text = sample.decode(errors="replace")
    records = []
    try:
        for start, end in _items(text):
            records.append(text[start:end])
    except (ValueError, RecursionError):
        pass
    return records


def _only(text: str) -> Iterator[tuple[int, int]]:
    start = _skip(text, 0)
    if start < len(text):
        _, end = _SCANNER.raw_decode(text, start)
        yield start, end
        _require_end(text, end)


def _items(text: str) -> Iterator[tuple[int, int]]:
    at = _skip(text, 0)
    if not text.startswith("[", at):
        yield from _only(text)
        return
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        _require_end(text, at + 1)
        return
    while True:
        _, end = _SCANNER.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        if text.startswith("]", at):
            _require_end(text, at + 1)
            return
        if not text.startswith(",", at):
            message = "Expecting ',' delimiter"
            raise json.JSONDecodeError(message, text, at)
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _require_end(text: str, at: int) -> None:
    if (rest := _skip(text, at)) < len(text):
        message = "Extra data"
        raise json.JSONDecodeError(message, text, rest)
