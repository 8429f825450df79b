"""Reads a schema from DDL without Spark, as the capture gear runs where there is none."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["parse_ddl"]

_TOKEN = re.compile(r"\s*(?:(`(?:``|[^`])+`)|(\w+)|([<>(),:]))")
_SCALARS: Mapping[str, Schema] = {
    "TINYINT": Schema.int8(),
    "BYTE": Schema.int8(),
    "SMALLINT": Schema.int16(),
    "SHORT": Schema.int16(),
    "INT": Schema.int32(),
    "INTEGER": Schema.int32(),
    "BIGINT": Schema.int64(),
    "LONG": Schema.int64(),
    "FLOAT": Schema.float32(),
    "REAL": Schema.float32(),
    "DOUBLE": Schema.float64(),
    "BOOLEAN": Schema.boolean(),
    "STRING": Schema.string(),
    "BINARY": Schema.bytes(),
    "DATE": Schema.date(),
    "TIMESTAMP": Schema.timestamp(),
    "VARIANT": Schema.variant(),
}
_DECIMAL_DEFAULT = (10, 0)


@lru_cache(maxsize=256)
def parse_ddl(text: str, *, field: str) -> Schema:
    """Return the STRUCT that DDL such as ``id BIGINT NOT NULL, tags ARRAY<STRING>`` describes.

    Types and spelling are Spark SQL's. Items of arrays, values of maps and columns that do
    not say NOT NULL may be null.

    Args:
        text: The columns.
        field: The configuration key that holds them, for errors.

    Raises:
        ConfigError: It cannot be read; the text says where.
    """
    parser = _Parser(text, field)
    schema = parser.columns(end="")
    if not schema.fields:
        raise parser.wrong(expected="at least one column")
    return schema


class _Parser:
    """A recursive descent over the tokens; an empty token is the end."""

    def __init__(self, text: str, field: str) -> None:
        self._field = field
        self._text = text
        self._tokens: list[str] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise self.wrong(expected=f"no {text[place:].strip()[:20]!r}")
            self._tokens.append(found.group(0).strip())
            place = found.end()
        self._tokens.append("")
        self._next = 0

    def columns(self, *, end: str) -> Schema:
        fields: dict[str, Schema] = {}
        while not self._took(end):
            if fields:
                self._take(",")
            name = self._name()
            self._took(":")
            schema = self._type()
            optional = not self._took("NOT", "NULL")
            if name in fields:
                raise self.wrong(expected=f"one column {name!r} only")
            fields[name] = schema.replaced(optional=optional)
        return Schema.struct(fields)

    def wrong(self, *, expected: str) -> ConfigError:
        return ConfigError(
            problem=f"{self._text!r} cannot be read: expected {expected}.",
            field=self._field,
            fix="Write columns as in: id BIGINT NOT NULL, price DECIMAL(12, 2), "
            "tags ARRAY<STRING>.",
        )

    def _type(self) -> Schema:
        word = self._pop().upper()
        match word:
            case "DECIMAL" | "NUMERIC" | "DEC":
                precision, scale = self._sizes()
                return Schema.decimal(scale, precision=precision)
            case "ARRAY":
                self._take("<")
                items = self._type()
                self._take(">")
                return Schema.array(items.replaced(optional=True))
            case "MAP":
                self._take("<")
                keys = self._type()
                self._take(",")
                values = self._type()
                self._take(">")
                return Schema.map(keys, values.replaced(optional=True))
            case "STRUCT":
                self._take("<")
                return self.columns(end=">")
        if word not in _SCALARS:
            raise self.wrong(expected=f"a type and not {word!r}")
        return _SCALARS[word]

    def _sizes(self) -> tuple[int, int]:
        if not self._took("("):
            return _DECIMAL_DEFAULT
        precision, scale = self._number(), 0
        if self._took(","):
            scale = self._number()
        self._take(")")
        return precision, scale

    def _number(self) -> int:
        word = self._pop()
        if not word.isdigit():
            raise self.wrong(expected=f"a number and not {word!r}")
        return int(word)

    def _name(self) -> str:
        word = self._pop()
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise self.wrong(expected=f"a column's name and not {word!r}")
        return word

    def _pop(self) -> str:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _took(self, *words: str) -> bool:
        ahead = self._tokens[self._next : self._next + len(words)]
        if [token.upper() for token in ahead] != list(words):
            return False
        self._next = min(self._next + len(words), len(self._tokens) - 1)
        return True

    def _take(self, word: str) -> None:
        if not self._took(word):
            raise self.wrong(expected=f"{word!r} and not {self._tokens[self._next]!r}")
