"""Computes the value's fields by a SELECT."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Settings, setting
from headrace.sdk.sqltext import quote
from headrace.sdk.transform import TypedTransform
from headrace_plugins.transforms.user_sql import check_expression, enclosed, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr
    from headrace.sdk.transform import Types

_REFUSED = {
    "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION",
    "INTERSECT", "EXCEPT", "MINUS", "JOIN", "WINDOW", "LATERAL", "WITH", "DISTINCT",
}  # fmt: skip
_HIDDEN = re.compile(r"__\w+|record|original_key|original_value")


def _clauses(query: str) -> tuple[str, str | None]:
    """Return the expressions and the condition of a query. Raises ConfigError."""
    depth = 0
    places: dict[str, tuple[int, int]] = {}
    for token in tokens(query):
        depth += bool(token["open"]) - bool(token["close"])
        word = (token["word"] or "").upper()
        # `* EXCEPT (a)` leaves out fields; as a set operation SELECT follows it.
        excepted = word == "EXCEPT" and re.match(
            r"\s*\(\s*(?!SELECT\b)", query[token.end() :], re.IGNORECASE
        )
        if depth or not word or (excepted and "FROM" not in places):
            continue
        if word in _REFUSED:
            raise _wrong(problem=f"{word} is not possible, as each record gives one record.")
        if word in {"SELECT", "FROM", "WHERE"}:
            if word in places:
                raise _wrong(problem=f"{word} is there twice.")
            places[word] = token.span()
    if depth:
        raise _wrong(problem="A bracket is not closed, or not opened.")
    return _cut(query, places)


def _cut(query: str, places: Mapping[str, tuple[int, int]]) -> tuple[str, str | None]:
    order = sorted(places, key=lambda word: places[word])
    if order != [word for word in ("SELECT", "FROM", "WHERE") if word in places] or (
        "SELECT" not in places or query[: places["SELECT"][0]].strip()
    ):
        raise _wrong(problem="It is no SELECT … [FROM record] [WHERE …].")
    ends = {
        word: places[order[number + 1]][0] if number + 1 < len(order) else len(query)
        for number, word in enumerate(order)
    }
    parts = {word: query[places[word][1] : ends[word]].strip(" \t\r\n;") for word in order}
    if parts.get("FROM", "record").lower() != "record":
        raise _wrong(
            problem=f"There is nothing to select from but record, not {parts['FROM']}."
        )
    for word in order:
        if not parts[word]:
            raise _wrong(problem=f"Nothing follows {word}.")
    return parts["SELECT"], parts.get("WHERE")


def _wrong(*, problem: str) -> ConfigError:
    return ConfigError(
        problem=problem,
        fix="Write SELECT expressions [FROM record] [WHERE condition].",
        field="query",
    )


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    yield from check_expression(props, "query")
    if props.get("query") is not None:
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
    """Makes the value from a SELECT over each record, and drops what its WHERE leaves out.

    Fields of the value go by their names, a value without fields by ``value``, and the rest
    of the record is ``record.topic``, ``record.key``, ``record.timestamp`` and
    ``record.headers``. ``*`` stands for all fields of the value. Each record gives one: what
    would join, group or sort records is refused. Tombstones stay tombstones.
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
        # Tombstones have no fields, so no condition over those can say anything of them.
        drop = f"NOT {missing} AND NOT coalesce({enclosed(where)}, false)"
        return replace(after, dropped=shape.dropping(drop, self.alias).dropped)
