"""Control characters that stand in for CSV's signs that are not ASCII."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_FREE = range(0x1F, 0x0D, -1)
_BETWEEN = b"\xff"
"""A byte that UTF-8 does not have."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Exchanges signs that are not ASCII with control characters; a second time undoes it.

    Arrow's parser and the scanner of record ends support only signs of one byte. An exchange,
    unlike a replacement, can be undone in any text. Without pairs it returns what it gets.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, *signs: str) -> StandIns:
        """Return the stand-ins for those of ``signs`` that are not ASCII."""
        free = (chr(code) for code in _FREE if chr(code) not in signs)
        return cls(tuple((s, next(free)) for s in dict.fromkeys(signs) if not s.isascii()))

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def text(self, text: str) -> str:
        """Exchange the characters of a text."""
        signs = "".join(sign for sign, _ in self.pairs)
        others = "".join(other for _, other in self.pairs)
        return text.translate(str.maketrans(signs + others, others + signs))

    def block(self, block: bytes) -> bytes:
        """Exchange the characters of a text in UTF-8; other bytes stay unchanged."""
        if not self.pairs:
            return block
        text = block.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def table(self, table: pa.Table) -> pa.Table:
        """Exchange the characters in a table's columns of strings."""
        for number, column in enumerate(table.schema if self.pairs else ()):
            if pa.types.is_string(column.type):
                values = table.column(number).cast(pa.binary())
                for sign, other in self.pairs:
                    for old, new in ((sign, _BETWEEN), (other, sign), (_BETWEEN, other)):
                        values = pc.replace_substring(values, pattern=old, replacement=new)
                table = table.set_column(number, column.name, values.cast(pa.string()))
        return table
