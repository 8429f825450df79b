"""Converts files that are one JSON document each to lines of JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_DOCUMENT = 256 * 1024 * 1024
"""The maximum size of a document, decompressed: one worker parses it in memory."""
_BLANK = re.compile(r"[ \t\r\n]*")
_BREAK = re.compile(r"[\r\n]")
# The scanner only finds where values end: digits need not become numbers.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def lines_of_document(text: str, *, whole: bool) -> list[tuple[int, str]]:
    """Return the records of a document, each as one line with its line number, from 0.

    The records are the items of an array, unless ``whole`` is set; a document with any other
    value is one record. Raises ValueError with the reason if the document is invalid.
    """
    try:
        spans = list(_items(text) if not whole else _only(text))
    except RecursionError:
        message = "The value is nested too deeply"
        raise ValueError(message) from None
    except json.JSONDecodeError as error:
        message = f"Invalid JSON: {error.msg}, in line {error.lineno}"
        raise ValueError(message) from None
    records, line, before = [], 0, 0
    for start, end in spans:
        line += text.count("\n", before, start)
        before = start
        # A JSON string contains no line break, so this one is between tokens.
        records.append((line, _BREAK.sub(" ", text[start:end])))
    return records


def first_items(sample: bytes) -> list[str]:
    """Return the records of a document up to the first incomplete one."""
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
