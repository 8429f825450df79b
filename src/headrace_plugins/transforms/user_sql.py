"""SQL that users write, read as far as it takes to put it into more SQL safely."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TOKEN = re.compile(
    r"(?P<quoted>[rR](?:'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z))|'(?:[^'\\]|\\.?|'')*(?:'|\Z)|"
    r"\"(?:[^\"\\]|\\.?|\"\")*(?:\"|\Z)|`(?:[^`]|``)*(?:`|\Z))"
    r"|(?P<comment>--(?:\\\n|[^\r\n])*|/\*.*?(?:\*/|\Z))"
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<word>\w+)|.",
    re.DOTALL,
)
"""As Spark's own lexer has them, or a text could hide in what only we take for a string. What
is not closed goes on to the end, so that no text is searched again and again."""
_CLOSED = re.compile(
    r"[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
    r"|--.*|/\*(?!\+)(?:(?!/\*).)*\*/",
    re.DOTALL,
)
"""A hint is no comment, and a comment within a comment is one in Spark."""
_JAVA = {"REFLECT", "TRY_REFLECT", "JAVA_METHOD", "IDENTIFIER"}
"""Functions that call Java's methods, and what gives any name to a function or a table."""
_QUERIES = {"SELECT", "FROM", "WITH", "TABLE", "VALUES", "MAP", "REDUCE"}
"""What a query may begin with."""
_GOES_ON = {
    "AND", "AS", "BETWEEN", "DIV", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "OR", "REGEXP",
    "RLIKE",
}  # fmt: skip
"""What follows a field whose name a query may begin with, such as ``values``."""
_SETS = {"UNION", "INTERSECT", "EXCEPT", "MINUS"}
_WINDOW = re.compile(r"\)\s*OVER\s*[(\w`]", re.IGNORECASE)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of an SQL text, by what they are: quoted, comment, open, close, word.

    They are all of the text.
    """
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
    if problem := _foreign(str(sql)):
        yield ConfigError(
            problem=problem,
            fix="Use functions of Spark SQL over the record's fields, and put names that SQL "
            "has a meaning for in backquotes.",
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


def _foreign(sql: str) -> str | None:
    """Return what is wrong with SQL that reaches out of its record."""
    found = [each for each in tokens(sql) if each[0].strip()]
    if any((t["quoted"] or t["comment"]) and not _CLOSED.fullmatch(t[0]) for t in found):
        return "A quote or a comment is not closed, or a comment holds another."
    texts = [_text(each) for each in found if not each["comment"]]
    for before, text, after in zip(["", *texts], texts, [*texts[1:], ""], strict=False):
        if text.strip("`") in _JAVA and after == "(":
            return f"{text.lower()} is not possible in SQL of a record: it may call Java."
        if _is_query(before, text, after):
            return (
                f"A query is not possible within SQL of a record, as {text} {after} is: it "
                "would read what is no record."
            )
    return None


def _text(token: re.Match[str]) -> str:
    """Return a token as Spark looks at it, without regard to case; strings are all alike."""
    return "''" if token["quoted"] and not token[0].startswith("`") else token[0].upper()


def _is_query(before: str, text: str, after: str) -> bool:
    """Return whether a query begins or goes on at a token, as far as it may read a table.

    What a query begins with may be a field's name too, and a function's.
    """
    if text in _SETS:
        return after in _QUERIES or after in {"ALL", "DISTINCT"}
    if text + after == "|>":
        return True
    if text == "USING":
        return before != "."  # a program that a query would run
    if before != "(" or text not in _QUERIES:
        return False
    if text in {"SELECT", "FROM", "WITH"}:
        return True
    names = after[:1].isalnum() or after[:1] in {"_", "`", "'"}
    opens = after == "(" and text in {"TABLE", "VALUES"}
    return (names and after not in _GOES_ON) or opens
