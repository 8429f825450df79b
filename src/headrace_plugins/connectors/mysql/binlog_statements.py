"""Parses statements in a binary log for their effect on tables."""

from __future__ import annotations

import re

from headrace_plugins.databases.catalog import TableName

_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$\u0080-\uffff]+)"
_PATH = rf"(?:({_NAME})\s*\.\s*)?({_NAME})"
_NAMES = re.compile(rf"({_NAME})(?:\s*\.\s*({_NAME}))?")
_TRUNCATE = re.compile(rf"(?i)TRUNCATE\b\s*(?:TABLE\b\s*)?{_PATH}")
_REPLACE = re.compile(rf"(?i)CREATE\s+OR\s+REPLACE\s+TABLE\b\s*{_PATH}")
_ALTER = re.compile(r"(?i)ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\b")
_TABLE = re.compile(rf"(?i)\bTABLE\b\s*(?:IF\s+EXISTS\s+)?{_PATH}")
_STORED = re.compile(
    r"(?i)\b(?:(?:TRUNCATE|DROP|EXCHANGE|CONVERT)\s+PARTITION|CONVERT\s+TABLE"
    r"|(?:DISCARD|IMPORT)\s+(?:PARTITION\b.*)?TABLESPACE)\b"
)
_QUOTED = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
_COMMENTS = re.compile(
    rf"(?s)({_QUOTED})|/\*M?!\d*|/\*.*?\*/|\*/|--(?:[ \t][^\n]*|(?=\n|\Z))|#[^\n]*"
)
"""Quoted parts, and comments; of executable comments only the delimiters."""
_STRINGS = re.compile(rf"(?s){_QUOTED}")
_SET = re.compile(rf"(?is)\A\s*SET\s+STATEMENT\b(?:{_QUOTED}|[^'\"`])*?\sFOR\s+")


def plain(statement: str) -> str:
    """Return a statement without comments, and without a SET STATEMENT prefix."""
    found = _COMMENTS.sub(lambda match: match[1] or " ", statement).strip()
    return _SET.sub("", found)


def truncated(statement: str, schema: str) -> TableName | None:
    """Return the table that a TRUNCATE empties; None for any other statement."""
    return _table(_TRUNCATE.match(statement), schema)


def replaced(statement: str, schema: str) -> TableName | None:
    """Return the table that CREATE OR REPLACE TABLE replaces; None for other statements."""
    return _table(_REPLACE.match(statement), schema)


def stored_otherwise(statement: str, schema: str) -> set[TableName]:
    """Return the tables whose rows a statement adds or removes by partitions or files."""
    if not _ALTER.match(statement) or not _STORED.search(_STRINGS.sub("x", statement)):
        return set()
    return {_name(found, schema) for found in _TABLE.finditer(statement)}


def names_in(statement: str, schema: str) -> set[TableName]:
    """Return all possible table names in a statement."""
    return {
        TableName(_plain(first) if second else schema, _plain(second or first))
        for first, second in _NAMES.findall(statement)
    }


def _table(found: re.Match[str] | None, schema: str) -> TableName | None:
    return None if found is None else _name(found, schema)


def _name(found: re.Match[str], schema: str) -> TableName:
    return TableName(_plain(found[1]) if found[1] else schema, _plain(found[2]))


def _plain(name: str) -> str:
    sign = name[0]
    return name[1:-1].replace(sign * 2, sign) if sign in '`"' else name
