"""Tables that hold a database's types and values to the last: what they are made of.

Each kind of database has a module beside this one with its `TABLES`. A test makes a table by
its `statements`, lets something read it or copy it, and compares with `rows`, so that it can
say which value of which column came out wrong.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

KEY = "id"
"""The column that numbers the rows, from 1, where a table does not say otherwise."""


@dataclass(frozen=True)
class Unfit:
    """A value that its column's type in other systems cannot have, such as a date of infinity.

    Args:
        text: What the database shows for it; a column that is read as text has this.
        why: Why nothing but text can carry it.
    """

    text: str
    why: str


@dataclass(frozen=True)
class Column:
    """A column with its values.

    Args:
        name: Its name, not quoted.
        type: Its type as in CREATE TABLE, with what follows it.
        values: SQL literals with what a reader gets for each: an int, Decimal, float, bool,
            str, bytes, date, time, datetime (aware where the type is), a list of such, or
            `Unfit`. Texts are those of a session whose time zone is UTC.
        read: How the database's own driver is asked for such a value.
        of_row: The value by the number of its row, where the database makes it.
    """

    name: str
    type: str
    values: Sequence[tuple[str, object]] = ()
    read: str = "{}"
    of_row: Callable[[int], object] | None = None


@dataclass(frozen=True)
class Table:
    """A table with one row for the longest list of values; others have nulls in the end.

    Args:
        name: Its name, not quoted.
        columns: Beside the key.
        quote: What the database quotes names with.
        key: The constraint of the primary key; None where there is none.
        key_type: The type of the column that numbers the rows.
        options: What follows the closing parenthesis.
        before: Statements that must have run, such as those that make types.
    """

    name: str
    columns: Sequence[Column]
    quote: str = '"'
    key: str | None = f"PRIMARY KEY ({KEY})"
    key_type: str = "BIGINT NOT NULL"
    options: str = ""
    before: Sequence[str] = ()

    def statements(self, *, unfit: bool = True) -> list[str]:
        """Return what makes the table and its rows, unfit values or nulls in their place.

        The session's time zone must be UTC.
        """
        columns = [f"{KEY} {self.key_type}"]
        columns += [f"{self.quoted(each.name)} {each.type}" for each in self.columns]
        given = [each for each in self.columns if each.of_row is None]
        names = ", ".join([KEY, *(self.quoted(each.name) for each in given)])
        inserts = []
        for number in range(1, self.length + 1):
            literals = [_at(each, number, unfit=unfit)[0] for each in given]
            row = ", ".join([str(number), *literals])
            inserts.append(f"INSERT INTO {self.quoted(self.name)} ({names}) VALUES ({row})")  # noqa: S608
        parts = ",\n  ".join([*columns, *([self.key] if self.key else [])])
        create = f"CREATE TABLE {self.quoted(self.name)} (\n  {parts}\n) {self.options}"
        return [*self.before, create, *inserts]

    def spread(self) -> "Table":
        """Return the table with one value a row, behind a first row of nulls.

        So one value that a system refuses takes no other along.
        """
        columns, before = list[Column](), 1
        for each in self.columns:
            values = [*[("NULL", None)] * before, *each.values]
            columns.append(replace(each, values=values if each.values else ()))
            before += len(each.values)
        return replace(self, columns=columns)

    def rows(self, *, unfit: bool = True) -> list[dict[str, object]]:
        """Return what a reader gets, in the order of the key."""
        return [
            {KEY: number}
            | {each.name: _at(each, number, unfit=unfit)[1] for each in self.columns}
            for number in range(1, self.length + 1)
        ]

    def differences(
        self, found: Sequence[Sequence[object]], *, unfit: bool = True
    ) -> list[str]:
        """Return a line for each value that is not as expected; found are all rows in order."""
        expected = self.rows(unfit=unfit)
        assert len(found) == len(expected)
        return [
            f"row {row[KEY]}, column {name!r}: expected {value!r}, got {cell!r}"[:500]
            for row, cells in zip(expected, found, strict=True)
            for (name, value), cell in zip(row.items(), cells, strict=True)
            if not same(value, cell)
        ]

    def query(self) -> str:
        """Return a query whose values the database's own driver gives as `rows` has them."""
        reads = [each.read.format(self.quoted(each.name)) for each in self.columns]
        return f"SELECT {', '.join([KEY, *reads])} FROM {self.quoted(self.name)} ORDER BY {KEY}"  # noqa: S608

    @property
    def length(self) -> int:
        """How many rows it has."""
        return max(len(each.values) for each in self.columns)

    def quoted(self, name: str) -> str:
        """Return a name as SQL has it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


def _at(column: Column, number: int, *, unfit: bool) -> tuple[str, object]:
    if column.of_row is not None:
        return "", column.of_row(number)
    if number > len(column.values):
        return "NULL", None
    literal, value = column.values[number - 1]
    return ("NULL", None) if isinstance(value, Unfit) and not unfit else (literal, value)


def same(expected: object, found: object) -> bool:
    """Return whether a value is the expected one to the last bit, sign and trailing blank.

    NaN is itself, 0.0 is not -0.0, 1 is not True unless the column knows no better, and a list
    is compared one by one. Numbers of different types are compared by what they are worth.
    """
    if isinstance(expected, Unfit):
        expected = expected.text
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected):
            return math.isnan(found)
        return struct.pack("d", expected) == struct.pack("d", found)
    if isinstance(expected, str | bytes | list) or expected is None:
        return type(expected) is type(found) and expected == found
    return expected == found


ODD_TEXTS = (
    "",
    " ",
    "trailing blanks  ",
    "\tboth sides\n",
    "it's \"quoted\", `back` and 'twice''",
    "back\\slash, \\n, \\\\, \\x41, %s, {}, $1, :name, ?",
    "\\N",
    "\\.",
    "end\n\\.\nof data",
    "NULL",
    "null",
    "one\nline, two\r\nlines, three\rlines",
    "tab\tvertical\x0bform\x0cbell\x07escape\x1bdelete\x7f",
    "semicolon; comma, pipe| hash# dash-- /* comment */",
    "emoji 🎉, family 👩\u200d👩\u200d👧\u200d👦, flag 🇩🇪, beyond the plane 𝔘𐍈",
    "right to left שלום مرحبا, override \u202etxet\u202c",
    "composed é, decomposed e\u0301, sharp ß ẞ, dotless \u0131 İ",
    "separators \u2028\u2029\u0085\u00a0\u200b\ufeff, replaced \ufffd, last \U0010ffff",
    '<tag attribute="x">&amp;</tag>',
    "0012.50",
    "long " + "wörd " * 200_000,  # more than a megabyte
)
"""Texts without NUL, of which some systems make something else."""
