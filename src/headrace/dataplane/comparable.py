"""Defines how a value is compared with its copy in another system.

The pair of schemas decides. Both sides are converted to one scalar type in which equal values
are equal: integers, decimals and booleans by value, floats by the lower precision, times as
microseconds, JSON with sorted names, lists and structs part by part as texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headrace.sdk import Schema, Type
from headrace.sdk.metadata import native_head
from headrace.sdk.schema import (
    COLUMN_TYPE,
    DATE,
    DECIMAL,
    FLOATS,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    WHOLE_NUMBERS,
    precision_of,
    scale_of,
)
from headrace.sdk.sqltext import JSON_OPTIONS, quote

Sql = Callable[[str], str]

_MICROS = 6
_DAY_MICROS = 86_400_000_000
_WHOLE_DIGITS = dict(zip(WHOLE_NUMBERS, (3, 5, 10, 19), strict=True))
_EXACT_DIGITS = {"FLOAT": 6, "DOUBLE": 15}
"""How many decimal digits survive a round trip through a float, whatever the digits are."""
_NESTED = (Type.STRUCT, Type.ARRAY, Type.MAP)
_DIGITS_OF_COLUMN = re.compile(r"\((\d)\)")
_NUMBER = r"^[+-]?[0-9]+(\\.[0-9]+)?$"
_TRIMMED = "rtrim('.', rtrim('0', {}))"


@dataclass(frozen=True)
class Comparable:
    """How the values of a column are compared.

    Args:
        source, target: Map the SQL of a value to the SQL of its compared form. Equal values
            have equal compared forms in Spark, of one scalar type; null maps to null.
        truncated: The same as ``source``, for a target that truncates digits instead of
            rounding; None if no digits are lost.
        loss: The two types, if the target's type cannot represent all source values.
    """

    source: Sql
    target: Sql
    truncated: Sql | None = None
    loss: str | None = None

    def of_source(self, sql: str, *, truncated: bool) -> str:
        """Return the SQL of the compared form of a source value."""
        return (self.truncated or self.source if truncated else self.source)(sql)


def comparable(source: Schema, target: Schema, *, allow_loss: bool = False) -> Comparable:
    """Return how values of two schemas are compared, in the form of record frames.

    Digits that the target cannot represent count as a difference, unless ``allow_loss``: then
    the source's values are rounded or truncated to the target's digits.
    """
    return _Pair(source, target, allow_loss).compared()


def title(schema: Schema) -> str:
    """Return the name of a type, with its digits: `decimal(10,2)`, `timestamp(3)`."""
    name = _logical(schema)
    if name == DECIMAL:
        precision, scale = _exact(schema) or (0, 0)
        return f"decimal({precision},{scale})"
    if name in (TIME, TIMESTAMP):
        kind = "time" if name == TIME else "timestamp"
        return f"{'local ' if schema.is_local else ''}{kind}({_time_digits(schema)})"
    if name == DATE:
        return "date"
    return "variant" if name == VARIANT else schema.type.value.lower()


@dataclass(frozen=True)
class _Pair:
    """Two schemas.

    Args:
        depth: The nesting depth in lists; numbers the variables of lambdas.
    """

    source: Schema
    target: Schema
    allow_loss: bool
    depth: int = 0

    def compared(self) -> Comparable:
        one, other = self.source, self.target
        nested = [each.type for each in (one, other) if each.type in _NESTED]
        if VARIANT in (_logical(one), _logical(other)) or len(nested) == 1:
            return Comparable(_json(one), _json(other))
        if nested:
            return (
                self._nested()
                if one.type is other.type
                else Comparable(_json(one), _json(other))
            )
        if _unit(one) and _unit(other) and (_logical(one) == TIME) is (_logical(other) == TIME):
            return self._times()
        if _exact(one) and _exact(other):
            return self._exact_numbers()
        floats = [_float(each) for each in (one, other) if _float(each)]
        if floats and all(_exact(each) or _float(each) for each in (one, other)):
            return self._floats()
        if Type.STRING in (one.type, other.type) and one.type is not other.type:
            return Comparable(_as_text(one, other), _as_text(other, one))
        if _kind(one) == _kind(other):
            return Comparable(_same, _same)
        return Comparable(_text, _text)

    def _lossy(self, exact: Comparable, rounded: Sql, cut: Sql, target: Sql) -> Comparable:
        """Return the comparison if the target may not represent all digits."""
        loss = f"source {title(self.source)} → target {title(self.target)}"
        if not self.allow_loss:
            return Comparable(exact.source, exact.target, loss=loss)
        return Comparable(rounded, target, cut, loss)

    def _exact_numbers(self) -> Comparable:
        (p, s), (tp, ts) = _exact(self.source) or (0, 0), _exact(self.target) or (0, 0)
        scale = max(s, ts)
        digits = max(p - s, tp - ts) + scale
        kind = None
        if digits <= MAX_PRECISION:
            has_decimal = DECIMAL in (_logical(self.source), _logical(self.target))
            kind = f"DECIMAL({digits},{scale})" if has_decimal else "BIGINT"
        number = partial(_number, kind)
        exact = Comparable(number(self.source), number(self.target))
        if s <= ts:
            return exact
        own, held = number(self.source), number(self.target)

        def rounded(sql: str) -> str:
            return own(f"round({sql}, {ts})")

        def cut(sql: str) -> str:
            return own(f"IF({sql} < 0, ceil({sql}, {ts}), floor({sql}, {ts}))")

        return self._lossy(exact, rounded, cut, held)

    def _floats(self) -> Comparable:
        one, other = _float(self.source), _float(self.target)
        kind = "FLOAT" if "FLOAT" in (one, other) else "DOUBLE"
        by_value = partial(_float_sql, kind)
        if one and other:
            # A FLOAT64 and a FLOAT32 are compared with the precision of the FLOAT32.
            return Comparable(by_value, by_value)
        number, is_source = (self.source, True) if other else (self.target, False)
        precision, scale = _exact(number) or (0, 0)
        if is_source and precision <= _EXACT_DIGITS[kind]:
            return Comparable(by_value, by_value)

        def faithful(sql: str) -> str:
            """Return the float's text if the float represents the number exactly."""
            back = f"CAST({_float_sql(kind, sql)} AS STRING)"
            exact = f"DECIMAL({MAX_PRECISION},{scale})"
            same = f"try_cast({back} AS {exact}) <=> {_number(exact, number)(sql)}"
            return f"IF({same}, {back}, concat('exactly ', CAST({sql} AS STRING)))"

        def text(sql: str) -> str:
            return f"CAST({_float_sql(kind, sql)} AS STRING)"

        if is_source:
            return self._lossy(Comparable(faithful, text), by_value, by_value, by_value)

        def rounded(sql: str) -> str:
            return f"try_cast({sql} AS DECIMAL({MAX_PRECISION},{scale}))"

        def cut(sql: str) -> str:
            fine = f"try_cast(CAST({sql} AS STRING) AS DECIMAL({MAX_PRECISION},{_fine(scale)}))"
            whole = f"IF({fine} < 0, ceil({fine}, {scale}), floor({fine}, {scale}))"
            return f"try_cast({whole} AS DECIMAL({MAX_PRECISION},{scale}))"

        held = _number(f"DECIMAL({MAX_PRECISION},{scale})", number)
        return self._lossy(Comparable(text, faithful), rounded, cut, held)

    def _times(self) -> Comparable:
        source, target = _micros(self.source), _micros(self.target)
        exact = Comparable(source, target)
        unit = _unit(self.target)
        if unit <= _unit(self.source):
            return exact

        def cut(sql: str) -> str:
            return f"({source(sql)} - pmod({source(sql)}, {unit}))"

        def rounded(sql: str) -> str:
            half = f"({source(sql)} + {unit // 2})"
            return f"({half} - pmod({half}, {unit}))"

        return self._lossy(exact, rounded, cut, target)

    def _nested(self) -> Comparable:
        if self.source.type is Type.STRUCT:
            return self._structs()
        items = self._inner(self.source.value_schema, self.target.value_schema)
        if self.source.type is Type.ARRAY:
            return self._joined(
                items, lambda part, sql, x: f"transform({sql}, {x} -> {part(x)})"
            )
        keys = self._inner(self.source.key_schema, self.target.key_schema)

        def entries(key: Sql, value: Sql, sql: str) -> str:
            x = self._variable
            pair = f"named_struct('k', {key(f'{x}.key')}, 'v', {value(f'{x}.value')})"
            return _json_of(f"array_sort(transform(map_entries({sql}), {x} -> {pair}))")

        return Comparable(
            partial(entries, keys.source, items.source),
            partial(entries, keys.target, items.target),
            partial(entries, keys.truncated or keys.source, items.truncated or items.source)
            if keys.truncated or items.truncated
            else None,
            keys.loss or items.loss,
        )

    def _joined(self, part: Comparable, around: Callable[[Sql, str, str], str]) -> Comparable:
        def laid(inner: Sql, sql: str) -> str:
            return _json_of(around(inner, sql, self._variable))

        return Comparable(
            partial(laid, part.source),
            partial(laid, part.target),
            part.truncated and partial(laid, part.truncated),
            part.loss,
        )

    def _structs(self) -> Comparable:
        names = matched_names(self.source, self.target)
        pairs: list[tuple[str, str, Comparable]] = []
        for field in self.source.fields:
            other = self.target.field(names.get(field.name, ""))
            if other is None:
                # The target can only have null.
                pairs.append(
                    (field.name, "", Comparable(_presence, lambda _: _presence("NULL")))
                )
            else:
                part = self._inner(field.schema, other.schema, deeper=False)
                pairs.append((field.name, other.name, part))

        def laid(which: str, sql: str) -> str:
            fields = []
            for number, (name, held, part) in enumerate(pairs):
                own = f"{sql}.{quote(held if which == 'target' else name)}"
                make = part.target if which == "target" else part.source
                if which == "truncated":
                    make = part.truncated or part.source
                fields.append(f"'f{number}', {make(own)}")
            whole = _json_of(f"named_struct({', '.join(fields)})")
            return f"IF({sql} IS NULL, NULL, {whole})"

        loss = next((part.loss for _, _, part in pairs if part.loss), None)
        truncated = any(part.truncated for _, _, part in pairs)
        return Comparable(
            partial(laid, "source"),
            partial(laid, "target"),
            partial(laid, "truncated") if truncated else None,
            loss,
        )

    def _inner(
        self, source: Schema | None, target: Schema | None, *, deeper: bool = True
    ) -> Comparable:
        assert source is not None
        assert target is not None
        return _Pair(source, target, self.allow_loss, self.depth + deeper).compared()

    @property
    def _variable(self) -> str:
        return f"x{self.depth}"


def matched_names(source: Schema, target: Schema) -> dict[str, str]:
    """Return the target's name of each field that both have, ignoring case."""
    lower: dict[str, list[str]] = {}
    for field in target.fields:
        lower.setdefault(field.name.lower(), []).append(field.name)
    found = {}
    for field in source.fields:
        close = lower.get(field.name.lower(), [])
        if field.name in close or len(close) == 1:
            found[field.name] = field.name if field.name in close else close[0]
    return found


def _logical(schema: Schema) -> str | None:
    return schema.name if schema.is_logical else None


def _kind(schema: Schema) -> object:
    return _logical(schema) or schema.type


def _exact(schema: Schema) -> tuple[int, int] | None:
    """Return precision and scale of an exact numeric type; None for other types."""
    if _logical(schema) == DECIMAL:
        head = native_head(schema)
        return precision_of(head.parameters) or MAX_PRECISION, scale_of(head.parameters) or 0
    if schema.type is Type.BOOLEAN:
        return 1, 0
    if _logical(schema) in (DATE, TIMESTAMP):
        return None
    digits = _WHOLE_DIGITS.get(schema.type)
    if _logical(schema) == TIME:
        digits = _WHOLE_DIGITS[Type.INT64]
    return None if digits is None else (digits, 0)


def _float(schema: Schema) -> str:
    if schema.type not in FLOATS:
        return ""
    return "FLOAT" if schema.type is Type.FLOAT32 else "DOUBLE"


def _unit(schema: Schema) -> int:
    """Return the resolution of a time or a date in microseconds; 0 for other types."""
    if _logical(schema) == DATE:
        return _DAY_MICROS
    if _logical(schema) in (TIME, TIMESTAMP):
        return int(10 ** (_MICROS - _time_digits(schema)))
    return 0


def _time_digits(schema: Schema) -> int:
    """Return the fractional second digits of a column type."""
    found = _DIGITS_OF_COLUMN.search(schema.parameters.get(COLUMN_TYPE, ""))
    return min(_MICROS, int(found[1])) if found else _MICROS


def _fine(scale: int) -> int:
    return min(MAX_PRECISION - 1, scale + 16)


def _same(sql: str) -> str:
    return sql


def _text(sql: str) -> str:
    return f"CAST({sql} AS STRING)"


def _presence(sql: str) -> str:
    return f"IF({sql} IS NULL, CAST(NULL AS STRING), 'there')"


def _number(kind: str | None, schema: Schema) -> Sql:
    """Return a cast to ``kind``, which fits both sides; None for the text of the digits."""
    if kind is None:
        return partial(_number_text, _exact(schema) or (0, 0))
    if schema.type is Type.BOOLEAN:
        return lambda sql: f"CAST(CAST({sql} AS INT) AS {kind})"
    return lambda sql: f"CAST({sql} AS {kind})"


def _number_text(exact: tuple[int, int], sql: str) -> str:
    text = f"CAST({sql} AS STRING)"
    return f"IF(contains({text}, '.'), {_TRIMMED.format(text)}, {text})" if exact[1] else text


def _float_sql(kind: str, sql: str) -> str:
    """Return a float with -0.0 as 0.0; NaN equals NaN in Spark."""
    return f"(CAST({sql} AS {kind}) + CAST(0 AS {kind}))"


def _micros(schema: Schema) -> Sql:
    if _logical(schema) == DATE:
        return lambda sql: f"CAST(unix_date({sql}) * {_DAY_MICROS}L AS BIGINT)"
    return _same if _logical(schema) == TIME else (lambda sql: f"unix_micros({sql})")


def _json_of(sql: str) -> str:
    return f"to_json({sql}, {JSON_OPTIONS})"


def _json(schema: Schema) -> Sql:
    """Return JSON with sorted names, and with numbers without trailing zeros."""
    if _logical(schema) == VARIANT:
        return lambda sql: f"to_json({sql})"
    if schema.type is Type.STRING:
        return lambda sql: f"coalesce(to_json(try_parse_json({sql})), {sql})"
    if schema.type in _NESTED:
        return lambda sql: f"to_json(parse_json({_json_of(sql)}))"
    return lambda sql: f"to_json(CAST({sql} AS VARIANT))"


def _as_text(own: Schema, other: Schema) -> Sql:
    """Return the compared form of ``own`` if one of the two types is a string."""
    if own.type is Type.STRING:
        return partial(_read_text, other)
    if own.type is Type.BYTES and _logical(own) is None:
        return _same
    if own.type is Type.BOOLEAN:
        return _text
    if _logical(own) == TIME:
        return _text
    if exact := _exact(own):
        return partial(_number_text, exact)
    if kind := _float(own):
        return lambda sql: f"CAST({_float_sql(kind, sql)} AS STRING)"
    if _logical(own) == TIMESTAMP:
        return lambda sql: f"CAST(unix_micros({sql}) AS STRING)"
    return _text


def _read_text(other: Schema, sql: str) -> str:
    """Parse a text as a value of the other type; return the text itself if that fails."""
    if other.type is Type.BYTES and _logical(other) is None:
        return f"CAST({sql} AS BINARY)"
    if other.type is Type.BOOLEAN:
        read = f"CAST(try_cast({sql} AS BOOLEAN) AS STRING)"
    elif _logical(other) == TIME:
        moment = f"concat('1970-01-01 ', {sql})"
        read = f"CAST(unix_micros(try_cast({moment} AS TIMESTAMP)) AS STRING)"
    elif _exact(other):
        has_zeros = f"{sql} RLIKE '{_NUMBER}' AND contains({sql}, '.')"
        read = f"IF({has_zeros}, {_TRIMMED.format(sql)}, {sql})"
    elif kind := _float(other):
        read = f"CAST({_float_sql(kind, f'try_cast({sql} AS {kind})')} AS STRING)"
    elif _logical(other) == TIMESTAMP:
        read = f"CAST(unix_micros(try_cast({sql} AS TIMESTAMP)) AS STRING)"
    else:
        read = f"CAST(try_cast({sql} AS DATE) AS STRING)"
    return f"coalesce({read}, {sql})"
