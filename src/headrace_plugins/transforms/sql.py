"""Transforms with user-defined SQL: Sql and Filter."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import Importance, Settings, setting
from headrace.sdk.sqltext import CALLS_JAVA, OPENS_FILES, quote
from headrace.sdk.transform import TypedTransform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.sdk import RecordExpr
    from headrace.sdk.transform import Types


_TOKEN = re.compile(
    r"(?P<quoted>[rR](?:'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z))|'(?:[^'\\]|\\.?|'')*(?:'|\Z)|"
    r"\"(?:[^\"\\]|\\.?|\"\")*(?:\"|\Z)|`(?:[^`]|``)*(?:`|\Z))"
    r"|(?P<comment>--(?:\\\n|[^\r\n])*|/\*.*?(?:\*/|\Z))"
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<word>\w+)|.",
    re.DOTALL,
)
"""The tokens of Spark's own lexer: any difference would allow SQL to hide in a string. An
unclosed quote or comment extends to the end, to avoid repeated searches of the text."""
_CLOSED = re.compile(
    r"[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
    r"|--.*|/\*(?!\+)(?:(?!/\*).)*\*/",
    re.DOTALL,
)
"""Closed quotes and comments. Excludes hints and nested comments, which Spark supports."""
_JAVA = {*(name.upper() for name in CALLS_JAVA), "IDENTIFIER"}
"""Functions that call Java methods, and IDENTIFIER, which names any function or table."""
_FILES = {*(name.upper() for name in OPENS_FILES), "FROM_AVRO"}
_QUERIES = {"SELECT", "FROM", "WITH", "TABLE", "VALUES", "MAP", "REDUCE"}
"""Words that a query may begin with."""
_GOES_ON = {
    "AND", "AS", "BETWEEN", "DIV", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "OR", "REGEXP",
    "RLIKE",
}  # fmt: skip
"""Words that may follow a field whose name is also in _QUERIES, such as ``values``."""
_SETS = {"UNION", "INTERSECT", "EXCEPT", "MINUS"}
_WINDOW = re.compile(r"\)\s*OVER\s*[(\w`]", re.IGNORECASE)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of an SQL text; the group tells the kind.

    Groups are quoted, comment, open, close and word. Together the tokens are the whole text.
    """
    return _TOKEN.finditer(sql)


def enclosed(sql: str) -> str:
    """Return SQL that a closing bracket may follow: ends a line comment with a line break."""
    return f"{sql}\n" if "--" in sql else sql


def check_expression(props: Mapping[str, object], key: str) -> Iterable[ConfigError]:
    """Yield the errors in a setting's SQL that can be found without Spark.

    A window function would read other records than the current one: it needs another stage,
    and its result would depend on how records are split into batches.
    """
    sql = props.get(key)
    if sql is None:
        return
    if problem := foreign(str(sql)):
        yield ConfigError(
            problem=problem,
            fix="Use functions of Spark SQL on the record's fields, and quote field names that "
            "are SQL keywords with backticks.",
            field=key,
        )
    # Ignore the content of quotes and comments.
    bare = "".join(
        " '' " if token["quoted"] else " " if token["comment"] else token[0]
        for token in tokens(str(sql))
    )
    if problem := unfinished(str(sql)):
        yield ConfigError(
            problem=problem, fix="Write an expression of Spark SQL, such as a > 1.", field=key
        )
    if _WINDOW.search(bare):
        yield ConfigError(
            problem="Window functions are not supported: each record is processed on its own.",
            fix="Use Deduplicate to compare with earlier records.",
            field=key,
        )


def unfinished(sql: str) -> str | None:
    """Return the error in an expression that lacks a value or a bracket; None if none is found.

    Finds only text that cannot be SQL. Spark finds the other errors at run time, as the check
    runs without Spark.
    """
    found = [each for each in tokens(sql) if each[0].strip() and not each["comment"]]
    depth = 0
    for token in found:
        depth += bool(token["open"]) - bool(token["close"])
        if depth < 0:
            break
    if depth:
        return "The brackets do not match."
    if not found:
        return "Expected an expression, got none."
    texts = ["''" if each["quoted"] else each[0].upper() for each in found]
    typed = any(each in _GENERIC and "<" in texts for each in texts)
    for before, text, after in zip(["(", *texts], texts, [*texts[1:], ")"], strict=False):
        opens, closes = before in _OPENS, after in _CLOSES
        is_sign = text in _SIGNS and not (typed and text in "<>")
        is_word = text in _BETWEEN_VALUES and not opens and before != "."
        if closes and (is_sign or is_word):
            return f"Expected a value after {text.lower()}."
        if opens and is_sign and text not in _PREFIXES:
            return f"Expected a value before {text}."
    return None


_OPENS, _CLOSES = {"(", "[", ","}, {")", "]", ","}
_SIGNS = {"=", "<", ">", "!", "+", "-", "/", "%", "&", "|", "^", "~"}
_PREFIXES = {"+", "-", "!", "~"}
_BETWEEN_VALUES = {"AND", "OR", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV", "BETWEEN", "IN"}
_GENERIC = {"ARRAY", "MAP", "STRUCT"}
"""Types whose angle brackets look like comparisons."""


def foreign(sql: str) -> str | None:
    """Return the error in SQL that accesses more than its record; None if there is none."""
    found = [each for each in tokens(sql) if each[0].strip()]
    if any((t["quoted"] or t["comment"]) and not _CLOSED.fullmatch(t[0]) for t in found):
        return "A quote or a comment is not closed, or comments are nested."
    # Case-insensitive, as in Spark; the content of strings does not matter.
    texts = [
        "''" if each["quoted"] and not each[0].startswith("`") else each[0].upper()
        for each in found
        if not each["comment"]
    ]
    for before, text, after in zip(["", *texts], texts, [*texts[1:], ""], strict=False):
        if text.strip("`") in _JAVA and after == "(":
            return f"{text.lower()} is not allowed in SQL of a record: it can call Java."
        if text.strip("`") in _FILES and after == "(":
            return (
                f"{text.lower()} is not allowed in SQL of a record: it can open files and "
                "network addresses."
            )
        if _is_query(before, text, after):
            return (
                f"A query ({text} {after}) is not allowed in SQL of a record: it would read "
                "more than the record."
            )
    return None


def _is_query(before: str, text: str, after: str) -> bool:
    """Return whether a query that may read a table begins or continues at a token.

    The words that begin a query may also be names of fields or functions.
    """
    if text in _SETS:
        return after in _QUERIES or after in {"ALL", "DISTINCT"}
    if text + after == "|>":
        return True
    if text == "USING":
        return before != "."  # a script that a query would run
    if before != "(" or text not in _QUERIES:
        return False
    if text in {"SELECT", "FROM", "WITH"}:
        return True
    names = after[:1].isalnum() or after[:1] in {"_", "`", "'"}
    opens = after == "(" and text in {"TABLE", "VALUES"}
    return (names and after not in _GOES_ON) or opens


_KEYWORDS = {
    "ALL", "AND", "ANY", "AS", "BETWEEN", "CASE", "DISTINCT", "DIV", "ELSE", "END", "ESCAPE",
    "EXISTS", "FALSE", "FOR", "FROM", "ILIKE", "IN", "INTERVAL", "IS", "LIKE", "NOT", "NULL",
    "OR", "REGEXP", "RLIKE", "SOME", "THEN", "TO", "TRUE", "WHEN",
}  # fmt: skip
"""Words with a meaning in expressions: a field with such a name needs backticks."""
_UNIT_OF = {
    "DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "EXTRACT", "TIMESTAMPADD", "TIMESTAMPDIFF",
}  # fmt: skip
"""Functions whose first argument may be a unit of time."""
_UNIT = re.compile(
    r"(MICROSECOND|MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK|MONTH|QUARTER|YEAR)S?"
)
_RECORD = {"topic", "key", "headers", "timestamp", "partition"}


def over_fields(sql: str, fields: Mapping[str, str]) -> str:
    """Replace the name of each field in an expression by the field's SQL, and return it.

    The result can be used in any query of a frame of records. ``record.topic``, ``record.key``
    and so on refer to the rest of the record, as in ``Sql``. Names are case-insensitive, as in
    Spark, unless two fields differ in case only. Words that are not fields stay as they are.
    """
    folded: dict[str, str | None] = {}
    for name, source in fields.items():
        folded[name.lower()] = None if name.lower() in folded else source
    found = list(tokens(sql))
    words = [n for n, each in enumerate(found) if each[0].strip() and not each["comment"]]
    texts = ["", "", *(found[n][0] for n in words), "", ""]
    variables = _variables([found[n][0] for n in words])
    out, kind = [each[0] for each in found], _TypeReader()
    for place, (n, token) in enumerate((n, found[n]) for n in words):
        outer, before, after = texts[place], texts[place + 1], texts[place + 3]
        in_type = kind.reads(token, before)
        text, quoted = token[0], token[0].startswith("`")
        if in_type or before in {".", ":"} or not (quoted or token["word"]):
            continue
        name = text[1:-1].replace("``", "`") if quoted else text
        if not quoted and (
            name.upper() in _KEYWORDS
            or name in variables
            or after[:1] in {"(", "'", '"'}
            or _is_unit(name.upper(), before.upper(), outer.upper())
        ):
            continue
        is_record = name.lower() == "record" and "record" not in folded and after == "."
        if is_record and texts[place + 4].lower() in _RECORD:
            out[n] = out[words[place + 1]] = ""
            continue
        out[n] = fields.get(name) or folded.get(name.lower()) or text
    return "".join(out)


class _TypeReader:
    """Recognizes the tokens of the type or the name that follows AS."""

    def __init__(self) -> None:
        self._depth, self._angles = 0, 0
        self._since: int | None = None

    def reads(self, token: re.Match[str], before: str) -> bool:
        self._depth += bool(token["open"]) - bool(token["close"])
        if before.upper() == "AS":
            self._since, self._angles = self._depth, 0
        if self._since is None:
            return False
        comma = token[0] == "," and self._depth == self._since and not self._angles
        if comma or self._depth < self._since:
            self._since = None
            return False
        self._angles += (token[0] == "<") - (token[0] == ">")
        return True


def _variables(texts: Sequence[str]) -> set[str]:
    """Return the names of lambda parameters, as in ``x -> x + 1``."""
    found: set[str] = set()
    for n, (text, after) in enumerate(itertools.pairwise(texts)):
        if text + after != "->" or not n:
            continue
        first = n - 1
        if texts[first] == ")":
            while first and texts[first] != "(":
                first -= 1
        found.update(texts[first:n])
    return found


def _is_unit(name: str, before: str, outer: str) -> bool:
    """Return whether a word is a unit, as in ``INTERVAL 2 DAYS``, ``EXTRACT(YEAR FROM t)``."""
    if not _UNIT.fullmatch(name):
        return False
    return outer == "INTERVAL" or before == "TO" or (before == "(" and outer in _UNIT_OF)


_REFUSED = {
    "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION",
    "INTERSECT", "EXCEPT", "MINUS", "JOIN", "WINDOW", "LATERAL", "WITH", "DISTINCT",
}  # fmt: skip
_HIDDEN = re.compile(r"__\w+|record|original_key|original_value")


def _clauses(query: str) -> tuple[str, str | None]:
    """Return the SELECT expressions and the WHERE condition of a query. Raises ConfigError."""
    depth = 0
    places: dict[str, tuple[int, int]] = {}
    for token in tokens(query):
        depth += bool(token["open"]) - bool(token["close"])
        word = (token["word"] or "").upper()
        # `* EXCEPT (a)` excludes fields; as a set operation, EXCEPT is followed by SELECT.
        excepted = word == "EXCEPT" and re.match(
            r"\s*\(\s*(?!SELECT\b)", query[token.end() :], re.IGNORECASE
        )
        if depth or not word or (excepted and "FROM" not in places):
            continue
        if word in _REFUSED:
            raise _wrong(
                problem=f"{word} is not supported, as each record must result in one record."
            )
        if word in {"SELECT", "FROM", "WHERE"}:
            if word in places:
                raise _wrong(problem=f"{word} occurs twice.")
            places[word] = token.span()
    if depth:
        raise _wrong(problem="The brackets do not match.")
    return _cut(query, places)


def _cut(query: str, places: Mapping[str, tuple[int, int]]) -> tuple[str, str | None]:
    order = sorted(places, key=lambda word: places[word])
    if order != [word for word in ("SELECT", "FROM", "WHERE") if word in places] or (
        "SELECT" not in places or query[: places["SELECT"][0]].strip()
    ):
        raise _wrong(problem="Expected SELECT … [FROM record] [WHERE …].")
    ends = {
        word: places[order[number + 1]][0] if number + 1 < len(order) else len(query)
        for number, word in enumerate(order)
    }
    parts = {word: query[places[word][1] : ends[word]].strip(" \t\r\n;") for word in order}
    if parts.get("FROM", "record").lower() != "record":
        raise _wrong(problem=f"The only table of the query is record, not {parts['FROM']}.")
    for word in order:
        if not parts[word]:
            raise _wrong(problem=f"Expected an expression after {word}.")
    return parts["SELECT"], parts.get("WHERE")


def _wrong(*, problem: str) -> ConfigError:
    return ConfigError(
        problem=problem,
        fix="Write SELECT expressions [FROM record] [WHERE condition].",
        field="query",
    )


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    wrong = list(check_expression(props, "query"))
    yield from wrong
    if props.get("query") is not None and not wrong:
        try:
            _clauses(str(props["query"]))
        except ConfigError as error:
            yield error


class SqlSettings(Settings):
    """The settings of ``Sql``."""

    query: str = setting(
        "SELECT expressions [FROM record] [WHERE condition], in Spark SQL.",
        importance=Importance.HIGH,
    )

    rules = (_check,)


class Sql(TypedTransform):
    """Replaces the value by a SELECT on each record, and drops records that WHERE excludes.

    Refer to fields of the value by name, to a value without fields as ``value``, and to the
    rest of the record as ``record.topic``, ``record.key``, ``record.timestamp`` and
    ``record.headers``. ``*`` means all fields of the value. Each record results in one record:
    joins, grouping and sorting are errors. Tombstones stay tombstones.
    """

    parts = False
    uses_names = True

    settings: SqlSettings

    @override
    def apply_typed(self, shape: RecordExpr, types: Types) -> RecordExpr:
        select, where = _clauses(self.settings.query)
        struct = f"struct({enclosed(select)})"
        schema = types([f"{struct} AS value"]).fields[0].schema
        columns = {
            field.name: (f"{struct}.{quote(field.name)}", field.schema)
            for field in schema.fields
            if not _HIDDEN.fullmatch(field.name)
        }
        value = shape.value
        missing = value.is_null()
        plain = replace(
            value,
            schema=schema.replaced(optional=missing != "false"),
            missing=None if missing == "false" else missing,
        )
        after = replace(shape, value=plain.with_fields(columns))
        if where is None:
            return after
        # Tombstones have no fields, so a condition on fields cannot select them.
        drop = f"NOT {missing} AND NOT coalesce({enclosed(where)}, false)"
        return replace(after, dropped=shape.dropping(drop, self.alias).dropped)


class FilterSettings(Settings):
    """The settings of ``Filter``."""

    condition: str | None = setting(
        "A Spark SQL condition on the value's fields; records for which it is false or "
        "unknown (null) are dropped. By default, every record that matches the predicate is "
        "dropped.",
        default=None,
        importance=Importance.HIGH,
    )

    rules = (lambda props: check_expression(props, "condition"),)


class Filter(Transform):
    """Drops records: all that match its predicate, or those that do not meet a condition.

    As in Kafka Connect, ``Filter`` with a predicate drops the records for which the
    predicate is true. With ``condition`` it keeps those for which the condition is true.
    """

    aliases = ("org.apache.kafka.connect.transforms.Filter",)
    parts = False
    uses_names = True

    settings: FilterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        condition = self.settings.condition
        drop = "true" if condition is None else f"NOT coalesce({enclosed(condition)}, false)"
        return shape.dropping(drop, self.alias)
