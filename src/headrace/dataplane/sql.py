"""SQL expressions over the columns of a frame: what they name, and what is put in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from headrace.sdk.sqltext import literal_text

_TEXT = r"""(?:\b[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_COMMENT = r"(?:--[^\n]*|/\*.*?\*/)"
_NAME = r"(?:\w+|`(?:``|[^`])*`)"
_COLUMN = re.compile(rf"{_NAME}(?:\.{_NAME})*\Z")
_NAMES = re.compile(rf"{_TEXT}|{_COMMENT}|({_NAME})", re.DOTALL)
_WORD = re.compile(r"\w")
_MOST = 1000
_known: dict[tuple[Sql, frozenset[str]], str | None] = {}


class Sql(str):
    """An SQL expression.

    Plugins make expressions as plain texts. Whatever has to look into one does it here,
    where texts, comments and quoted names are taken for what they are.
    """

    __slots__ = ()

    @property
    def is_column(self) -> bool:
        """Return whether it is only a column, or a field of one."""
        return _COLUMN.match(self) is not None

    @property
    def references(self) -> frozenset[str]:
        """Return the names that it may refer to, in lower case, and those of functions."""
        names = (found[1] for found in _NAMES.finditer(self) if found[1])
        return frozenset(
            (n[1:-1].replace("``", "`") if n[0] == "`" else n).lower() for n in names
        )


class Replacement:
    """Puts columns in place of the function calls that they hold."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        """Know the names of columns by calls.

        These are found where they stand to the letter as a whole, and not within a text, a
        comment or a quoted name.
        """
        self._columns = columns
        # They are looked up by their lengths, of which there are few: a pattern of all of them
        # would try each at each place.
        self._lengths = sorted({len(call) for call in columns}, reverse=True)
        names = {call.partition("(")[0] for call in columns}
        each = "|".join(re.escape(name) for name in sorted(names))
        pattern = rf"(?<!\w)({each})(?=\()|{_TEXT}|{_COMMENT}|`(?:``|[^`])*`"
        self._pattern = re.compile(pattern, re.DOTALL)

    def over(self, sql: str) -> str:
        """Return an expression with the columns in it."""
        if not self._columns or Sql(sql).is_column:
            return sql
        parts, copied, at = [], 0, 0
        while (found := self._pattern.search(sql, at)) is not None:
            call = self._call_at(sql, found.start()) if found[1] else None
            if call is None:
                # Another call may be within one that no column holds.
                at = found.end()
                continue
            parts += [sql[copied : found.start()], self._columns[call]]
            copied = at = found.start() + len(call)
        return "".join([*parts, sql[copied:]])

    def _call_at(self, sql: str, start: int) -> str | None:
        for length in self._lengths:
            end = start + length
            if sql[start:end] in self._columns and not _WORD.match(sql, end):
                return sql[start:end]
        return None


def constant_text(frame: DataFrame, sql: str) -> str | None:
    """Return the text that an expression over ``frame`` gives for all rows, if it is one.

    None when it depends on a column. Called for each batch: a literal and a column are
    known by their text, and whatever else was looked at once is known by it.
    """
    expression = Sql(sql)
    text = literal_text(sql)
    if text is not None or expression.is_column:
        return text
    # Which names are columns decides what the expression means.
    columns = frozenset(name.lower() for name in frame.columns)
    key = expression, columns & expression.references
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = _folded(frame, sql)
    return _known[key]


def _folded(frame: DataFrame, sql: str) -> str | None:
    try:
        analyzed = frame.selectExpr(f"{sql} AS text")._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark shows no expressions
    except AnalysisException:
        return None  # running the step says what is wrong, with its name
    expression = analyzed.expressions().head()
    if not (expression.child().foldable() and expression.deterministic()):
        return None
    row = frame.sparkSession.sql("SELECT 1").selectExpr(f"CAST({sql} AS STRING)").head()
    text: str | None = row[0] if row else None
    return text
