"""Finds the ends of records in text files: at line ends, for CSV only outside of quotes.

A CSV file is scanned in independent chunks, as many tasks read one file. Whether a chunk begins
inside of quotes is known only after all chunks before it are scanned, so each chunk is scanned
for both cases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_LF, _CR = 10, 13


@dataclass(frozen=True, slots=True)
class ChunkEnds:
    """The record ends in a chunk. Pairs: if the chunk begins outside, or inside of quotes.

    Args:
        inside: Whether the chunk ends inside of quotes.
        first: The number of bytes and line ends up to the end of the first record; None if
            no record ends in the chunk.
        lines: The number of line ends, including those in quotes.
        blank: Whether the chunk contains only line ends.
    """

    inside: tuple[bool, bool]
    first: tuple[tuple[int, int] | None, tuple[int, int] | None]
    lines: int
    blank: bool = False


@dataclass(frozen=True, slots=True)
class LineEnds:
    """Each line is a record; the methods are those of `CsvQuoting`."""

    def lines(self, block: bytes) -> int:
        return block.count(b"\n")

    def records(self, block: bytes) -> list[bytes]:
        *lines, rest = block.split(b"\n")
        return [line + b"\n" for line in lines] + ([rest] if rest else [])

    def first_end(self, block: bytes) -> int:
        return block.find(b"\n") + 1 or len(block)

    def whole(self, block: bytes) -> int:
        return block.rfind(b"\n") + 1

    def is_open(self, _block: bytes) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class CsvQuoting:
    """Quoting of CSV: a quote at the beginning of a value opens it, and is doubled inside.

    Args:
        delimiter, quote: The codes of the characters, one byte each.
        escape: The code of the character that escapes a quote or itself inside quotes; None
            for no such character. Before other characters it is literal, as in Spark.
    """

    delimiter: int
    quote: int
    escape: int | None = None

    def ends(self, chunk: bytes, before: int | None) -> ChunkEnds:
        """Scan a chunk, which must not begin or end next to a quote.

        ``before`` is the byte before the chunk; None at the beginning of the file.
        """
        states, firsts = [], []
        begun = int(before == _CR and not chunk.startswith(b"\n"))
        for inside in (False, True):
            places = self._quotes(chunk, before, inside=inside)
            states.append(inside ^ bool(len(places) & 1))
            end = next(_ends(chunk, places, inside=inside), None)
            firsts.append(None if end is None else (end, begun + self.lines(chunk[:end])))
        # A carriage return at the end belongs to the next chunk, which may begin with its feed.
        lines = begun + self.lines(chunk.removesuffix(b"\r"))
        return ChunkEnds((states[0], states[1]), (firsts[0], firsts[1]), lines)

    def lines(self, block: bytes) -> int:
        """Return the number of line ends, also in quotes."""
        feeds, returns = block.count(b"\n"), block.count(b"\r")
        return feeds + returns - block.count(b"\r\n") if returns else feeds

    def records(self, block: bytes) -> list[bytes]:
        """Return the records of a block that begins with one; the last may be incomplete."""
        places = self._quotes(block, None, inside=False)
        if _has_lone(block):
            cuts = [0, *_ends(block, places, inside=False)]
        else:
            feeds = np.flatnonzero(np.frombuffer(block, np.uint8) == _LF)
            is_end = np.searchsorted(places, feeds) % 2 == 0
            cuts = [0, *(feeds[is_end] + 1).tolist()]
        if cuts[-1] < len(block):
            cuts.append(len(block))
        return [block[start:end] for start, end in pairwise(cuts)]

    def first_end(self, block: bytes) -> int:
        """Return the length of the first record of a block that begins with a record."""
        places = self._quotes(block, None, inside=False)
        return next(_ends(block, places, inside=False), len(block))

    def whole(self, block: bytes) -> int:
        """Return the end of the last complete record of a block that begins with a record."""
        if self.quote not in block:
            return _last_end(block, 0, len(block))
        places = self._quotes(block, None, inside=False)
        if not len(places) & 1:
            places = np.append(places, len(block))
        # From the last part outside of quotes to the first one.
        for number in range(len(places) - 1, -1, -2):
            start = int(places[number - 1]) + 1 if number else 0
            if end := _last_end(block, start, int(places[number])):
                return end
        return 0

    def is_open(self, block: bytes) -> bool:
        """Return whether a block that begins with a record ends inside of quotes."""
        return bool(len(self._quotes(block, None, inside=False)) & 1)

    def text_after_quotes(self, block: bytes) -> NDArray[np.int64]:
        """Return where a block of records has text after the closing quote of a value."""
        if self.quote not in block:
            return np.empty(0, np.int64)
        closers = self._quotes(block, None, inside=False)[1::2] + 1
        if len(closers) and closers[-1] == len(block):
            closers = closers[:-1]
        behind = np.frombuffer(block, np.uint8)[closers]
        ends = (behind == self.delimiter) | (behind == _LF) | (behind == _CR)
        is_text: NDArray[np.bool_] = ~(ends | (behind == self.quote))
        return closers[is_text]

    def doubled(self, block: bytes) -> bytes:
        """Return a block of records with escaped quotes doubled, as parsers expect."""
        if self.escape is None or self.escape not in block:
            return block
        places = self._quotes(block, None, inside=False)
        escape, quote = bytes((self.escape,)), bytes((self.quote,))
        signs = {escape + quote: quote + quote, escape + escape: escape}

        def written(found: re.Match[bytes]) -> bytes:
            # Outside of quotes both characters are literal.
            is_inside = np.searchsorted(places, found.start()) & 1
            return signs[found[0]] if is_inside else found[0]

        pairs = b"|".join(map(re.escape, signs))
        return re.sub(pairs, written, block)

    def _unescaped(self, chunk: bytes) -> bytes:
        """Return the chunk with escaped quotes overwritten; the length stays the same."""
        if self.escape is None or bytes((self.escape, self.quote)) not in chunk:
            return chunk
        escape, quote = re.escape(bytes((self.escape,))), re.escape(bytes((self.quote,)))
        pair = b"(?<!%b)((?:%b%b)*)%b%b" % (escape, escape, escape, escape, quote)
        return re.sub(pair, rb"\g<1>xx", chunk)

    def _quotes(self, chunk: bytes, before: int | None, *, inside: bool) -> NDArray[np.int64]:
        """Return the places of quotes that open or close values; doubled quotes do both."""
        chunk = self._unescaped(chunk)
        data = np.frombuffer(chunk, np.uint8)
        places = np.flatnonzero(data == self.quote)
        openers = places[int(inside) :: 2]
        if not len(openers):
            return places
        previous = data[openers - 1]
        if openers[0] == 0:
            previous[0] = _LF if before is None else before
        begins = (previous == self.delimiter) | (previous == _LF) | (previous == _CR)
        if (begins | (previous == self.quote)).all():
            return places
        # A quote inside an unquoted value is literal.
        walked = self._walk(chunk, places.tolist(), before, inside=inside)
        return np.fromiter(walked, np.int64)

    def _walk(
        self, chunk: bytes, places: list[int], before: int | None, *, inside: bool
    ) -> Iterator[int]:
        begins, skipped = {self.delimiter, _LF, _CR}, -1
        for at, after in pairwise([*places, -1]):
            if at == skipped:
                continue
            if inside and after == at + 1:
                skipped = after
            elif inside:
                inside = False
                yield at
            elif (chunk[at - 1] if at else _LF if before is None else before) in begins:
                inside = True
                yield at


RecordEnds = LineEnds | CsvQuoting


def _ends(chunk: bytes, places: NDArray[np.int64], *, inside: bool) -> Iterator[int]:
    """Yield the place after each line end outside of quotes."""
    line_end = _LONE if _has_lone(chunk) else _FEED
    start, state = 0, inside
    for place in [*places.tolist(), len(chunk)]:
        if not state:
            for found in line_end.finditer(chunk, start, place):
                # A carriage return at the end may be the first half of a line end.
                if (end := found.end()) < len(chunk) or chunk[-1] == _LF:
                    yield end
        start, state = place + 1, not state


_FEED = re.compile(rb"\n")
_LONE = re.compile(rb"\n|\r(?!\n)")
"""Line ends of files in which some are lone carriage returns."""


def _has_lone(chunk: bytes) -> bool:
    """Return whether a carriage return has no line feed after it."""
    return b"\r" in chunk and chunk.count(b"\r") > chunk.count(b"\r\n")


def _last_end(block: bytes, start: int, stop: int) -> int:
    """Return the place after the last line end in a part of a block; 0 if there is none."""
    feed = block.rfind(b"\n", start, stop)
    back = block.rfind(b"\r", max(start, feed), stop)
    while back > feed and back + 1 == len(block):
        back = block.rfind(b"\r", max(start, feed), back)
    return max(feed, back) + 1
