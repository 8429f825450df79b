"""SQL that users write, read as far as it takes to put it into more SQL safely."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["check_expression", "enclosed", "tokens"]

_TOKEN = re.compile(
    r"(?P<quoted>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`)"
    r"|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<word>\w+)|.",
    re.DOTALL,
)
_FOREIGN = re.compile(
    r"`?\b(?:reflect|try_reflect|java_method)\b`?(?=\s*(?:/\*.*?\*/|--[^\n]*\n)*\s*\()"
    r"|\b(?:csv|json|text|parquet|orc|avro|delta|xml|binaryfile|image|libsvm)`?\s*\.\s*"
    r"`[^`]*[/\\][^`]*`",
    re.IGNORECASE | re.DOTALL,
)
"""Calls of Java's methods, and files as tables."""
_WINDOW = re.compile(r"\)\s*OVER\s*[(\w`]", re.IGNORECASE)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of an SQL text, by what they are: quoted, comment, open, close, word."""
    return _TOKEN.finditer(sql)


def enclosed(sql: str) -> str:
    """Return expressions so that brackets may follow them: a comment may end a line."""
    return f"{sql}\n" if "--" in sql else sql


def check_expression(props: Mapping[str, object], key: str) -> Iterable[ConfigError]:
    """Yield what is wrong with a key's SQL before Spark sees it.

    A window in it would look at other records than the one it is about: another stage, and
    another result for each way in which records fall into batches.
    """
    sql = props.get(key)
    if sql is None:
        return
    if found := _FOREIGN.search(str(sql)):
        yield ConfigError(
            problem=f"{found[0].strip()} is not possible in SQL of a record: it would call "
            "Java, or read what is no record.",
            fix="Use functions of Spark SQL over the record's fields.",
            field=key,
        )
    # What stands in quotes and comments says nothing.
    bare = "".join(
        " '' " if token["quoted"] else " " if token["comment"] else token[0]
        for token in tokens(str(sql))
    )
    if _WINDOW.search(bare):
        yield ConfigError(
            problem="A window function is not possible, as each record is looked at by itself.",
            fix="Use Deduplicate to compare with earlier records.",
            field=key,
        )
