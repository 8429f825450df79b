"""The CHECK constraints of a table, as conditions for records that break them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from headrace.sdk import Refusal
from headrace_plugins.connectors.delta.types import ddl, moved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from headrace_plugins.connectors.delta.fitting import Fit
    from headrace_plugins.connectors.delta.rows import Columns

__all__ = ["broken_constraints"]

_PREFIX = "delta.constraints."
# Strings, quoted names, words with what follows them, numbers, and anything else.
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|[A-Za-z_]\w*|\d[\w.]*|.""",
    re.DOTALL,
)
_NOT_A_COLUMN = re.compile(r"\s*[('\"]")
"""After a word: it is a function, or the type of a literal."""


def broken_constraints(
    frame: DataFrame,
    columns: Columns,
    fit: Fit,
    properties: Mapping[str, str],
    *,
    merges: bool,
) -> Iterator[Refusal]:
    """Yield conditions for records that Delta would refuse by a constraint. No job runs.

    A constraint that cannot be told from the records alone is left to Delta: it then refuses
    the batch as a whole.

    Args:
        frame: The records.
        columns: Their columns.
        fit: How these go into the table.
        properties: The table's, where its constraints are.
        merges: Whether columns that are not written may have values already.
    """
    sources = {
        to.lower(): f"({moved(columns.sources[name], columns.kinds[name], fit.type_of(to))})"
        for name, to in fit.names.items()
    }
    for field in fit.fields if not merges else ():
        sources.setdefault(field["name"].lower(), f"CAST(NULL AS {ddl(field['type'])})")
    for name, check in properties.items():
        if not name.startswith(_PREFIX):
            continue
        # Delta takes a constraint that is null for one that is broken.
        broken = f"(value IS NOT NULL AND NOT coalesce({_over(check, sources)}, false))"
        if _is_sql(frame, broken):
            constraint = name.removeprefix(_PREFIX)
            yield Refusal(
                condition=broken,
                problem=f"A record breaks the table's constraint {constraint}: {check}.",
                fix="Mend or filter such records with a transform, or drop the constraint.",
            )


def _over(check: str, sources: Mapping[str, str]) -> str:
    """Return a constraint with the SQL of each column in the place of its name."""
    found, before = [], ""
    for token in _TOKEN.finditer(check):
        text = token.group()
        name = text[1:-1].replace("``", "`") if text.startswith("`") else text
        source = sources.get(name.lower()) if text[0].isalpha() or text[0] in "_`" else None
        is_column = before != "." and not _NOT_A_COLUMN.match(check, token.end())
        found.append(source if source is not None and is_column else text)
        before = text.strip() or before
    return f"({''.join(found)})"


def _is_sql(frame: DataFrame, condition: str) -> bool:
    try:
        frame.selectExpr(condition)
    except AnalysisException:
        return False
    return True
