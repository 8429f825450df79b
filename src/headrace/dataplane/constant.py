"""Tells whether the topic of a batch's records is one name or depends on the data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.sdk.sqltext import literal_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REFERENCE = re.compile(r"(\w+|`(``|[^`])*`)(\.(\w+|`(``|[^`])*`))*\Z")
_MOST = 1000
_known: dict[tuple[str, tuple[str, ...]], str | None] = {}


def constant_text(frame: DataFrame, sql: str) -> str | None:
    """Return the text that an expression over ``frame`` gives for all rows, if it is one.

    None when it depends on a column. Called for each batch: a literal and a column are
    told by their text, and whatever else was looked at once is known by it.
    """
    text = literal_text(sql)
    if text is not None or _REFERENCE.match(sql):
        return text
    # Which names are columns decides what the expression means.
    key = sql, tuple(frame.columns)
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = _folded(frame, sql)
    return _known[key]


def _folded(frame: DataFrame, sql: str) -> str | None:
    # Plugin hosts import this module too, by way of topics, and have no Spark.
    from pyspark.errors import AnalysisException  # noqa: PLC0415

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
