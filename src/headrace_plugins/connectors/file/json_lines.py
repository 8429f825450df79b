"""Reads lines of JSON objects as rows, with Arrow or one by one; and documents as lines.

A document is a file that is one JSON value, or an array of the records.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow
from headrace.sdk.sqltext import quote, sql_type
from headrace.sdk.struct_exprs import has_variant, is_variant
from headrace_plugins.arrow_json import is_finite, read_objects
from headrace_plugins.connectors.file.record_ends import LineEnds
from headrace_plugins.connectors.file.text_blocks import (
    FAULTS,
    BadRecord,
    Parsed,
    cut_to_micros,
    joined,
    no_rows,
    salvaged,
    settled,
    times_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace_plugins.connectors.file.formats import Dialect

    _Value = Callable[[Any], Any]
    """Converts a JSON value; raises ValueError for a value of another type."""


_SHOWN_CHARS = 80
_VARIANT_DIGITS, _VARIANT_NAME, _VARIANT_TEXT = 38, 50_000, 20_000_000
"""The limits of Spark's VARIANT parser."""
_DEEPEST = 200
"""Fixed, as Python's own limit depends on how deep the caller is in its calls."""
_TOO_DEEP = f"the value is nested more than {_DEEPEST} levels deep"
_PLAIN = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?")
_FLOAT32_MAX = math.nextafter(float(np.finfo(np.float32).max) + 2.0**103, 0)
"""The largest number that is rounded to a finite one of 32 bits."""
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ARROWS_OWN = re.compile(rb"[:,\[]\s*(?:-?Inf(?!inity)|-NaN)\s*[,\]}]")
"""Numbers that only Arrow accepts."""
_MAYBE_TOO_LARGE = re.compile(rb"[0-9]{32}|[eE]\+?0*[0-9]{3}")
"""In all numbers that Arrow reads as infinity, although they are not called so."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UTC = pa.timestamp("us", "UTC")
_TIME_START = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Reads JSON objects, one per line, as rows of a schema; any values for a VARIANT schema.

    Fields that are not in the schema are ignored, and fields that a line lacks are null. A
    string column accepts any value, as its JSON text; other types accept only their own values.
    A VARIANT is returned as JSON text that Spark parses to the same value.
    """

    schema: Schema
    dialect: Dialect

    def read(self, block: bytes) -> Parsed:
        """Return the rows of complete lines."""
        return joined(self.parts(block))

    def parts(self, block: bytes) -> Iterator[Parsed]:
        """Yield what ``read`` returns in slices."""
        is_one = is_variant(self.schema)
        target = to_arrow(Schema.struct({"value": self.schema}) if is_one else self.schema)
        parse = partial(self._parse, target) if self._is_arrows(target) else _refuse
        return salvaged(
            block,
            parse,
            target,
            LineEnds(),
            find_invalid=partial(self._invalid, target),
            one_by_one=partial(self._one_by_one, target),
        )

    def _is_arrows(self, target: pa.Schema) -> bool:
        """Return whether Arrow reads all types; nested times only in ISO 8601."""
        if has_variant(self.schema):
            return False
        patterns = self.dialect.timestamp_format or self.dialect.date_format
        return not any(_is_beyond_arrow(f.type, patterns=bool(patterns)) for f in target)

    def _parse(self, target: pa.Schema, lines: bytes) -> Parsed:
        """Parse lines. Raises one of FAULTS if a line may not be exactly one row."""
        types = pa.schema([(f.name, _parsed_type(f.type)) for f in target])
        if (table := read_objects(lines, types)) is None:
            return Parsed(no_rows(target))
        if not all(map(is_finite, table.itercolumns())) and (
            _ARROWS_OWN.search(lines) or _MAYBE_TOO_LARGE.search(lines)
        ):
            message = "A number may be invalid."
            raise pa.ArrowInvalid(message)
        columns = table.columns  # not set one by one, which is quadratic
        for number, column in enumerate(target):
            values = columns[number]
            if (pattern := self.dialect.pattern_of(column.type)) is not None:
                values = pattern.read(values, truncates=self.dialect.truncates)
            elif pa.types.is_timestamp(column.type):
                own = self.schema.field(column.name)
                is_local = own is not None and own.schema.is_local
                values = times_of(values, self.dialect, is_local=is_local)
            elif pa.types.is_float32(column.type) and pc.any(pc.is_inf(values)).as_py():
                message = "A number may be too large."
                raise pa.ArrowInvalid(message)
            columns[number] = values
        table = pa.Table.from_arrays(columns, target.names)
        return Parsed(settled(table, target, self.dialect))

    def _invalid(self, target: pa.Schema, lines: Sequence[bytes]) -> dict[int, str]:
        """Return the indices of lines that are certainly invalid, with the reasons.

        Arrow often does not say at which line it stops, and calling it takes as long as parsing
        hundreds of lines. Python's parser shows which lines may be invalid.
        """
        if not self._is_arrows(target):
            return {}
        trees = {n: _plain_object(line) for n, line in enumerate(lines) if line.strip()}
        found = {number for number, tree in trees.items() if tree is None}
        found |= _misfits(
            pa.struct(list(target)), list(trees), list(trees.values()), self.dialect
        )
        read = self._reader(target)
        reasons = {number: _read_line(read, lines[number]) for number in sorted(found)}
        return {number: text for number, text in reasons.items() if isinstance(text, str)}

    def _one_by_one(self, target: pa.Schema, lines: list[bytes]) -> Parsed:
        read = self._reader(target)
        rows, bad = [], []
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            row = _read_line(read, line)
            if isinstance(row, str):
                bad.append(BadRecord(number, line.rstrip(b"\r\n"), row))
            else:
                rows.append(row)
        return Parsed(pa.RecordBatch.from_pylist(rows, target), bad)

    def _reader(self, target: pa.Schema) -> Callable[[Any], dict[str, Any]]:
        if is_variant(self.schema):
            return lambda tree: {"value": _variant(tree)}
        columns = {
            arrow.name: (_maker(arrow.type, column.schema, self.dialect), column)
            for arrow, column in zip(target, self.schema.fields, strict=True)
        }
        return lambda tree: _row(tree, columns)


def _read_line(read: Callable[[Any], dict[str, Any]], line: bytes) -> dict[str, Any] | str:
    """Return the row of a line, or the reason why it is invalid."""
    try:
        return read(_tree(line))
    except RecursionError:
        return "The value is nested too deeply"
    except ValueError as error:
        return str(error)


def _plain_object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line as Python reads it; None for any other line."""
    try:
        tree = _PLAIN_DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _misfits(
    kind: pa.DataType, rows: Sequence[int], values: Sequence[Any], dialect: Dialect
) -> set[int]:
    """Return the rows of values that may not be of a type: most of those, and some others."""
    some = [value for value in values if value is not None]
    if not some or (expected := _expected(kind, dialect)) is None:
        return set()
    types, fits = expected
    found = set()
    if not types.issuperset(map(type, some)) or not fits(some):
        found = {
            row
            for row, value in zip(rows, values, strict=True)
            if value is not None and not (type(value) in types and fits([value]))
        }
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        pairs = [(r, v) for r, v in zip(rows, values, strict=True) if type(v) in types]
        if pa.types.is_list(kind):
            items = [(row, item) for row, value in pairs for item in value]
            return found | _misfits(
                kind.value_type, [r for r, _ in items], [v for _, v in items], dialect
            )
        rows = [row for row, _ in pairs]
        for field in kind:
            found |= _misfits(field.type, rows, [v.get(field.name) for _, v in pairs], dialect)
    return found


def _expected(
    kind: pa.DataType, dialect: Dialect
) -> tuple[set[type], Callable[[Sequence[Any]], bool]] | None:
    """Return Python's types for JSON values of a type, and a test of values of these types.

    None if they may be of any type.
    """
    if pa.types.is_integer(kind):
        end = 2 ** (kind.bit_width - 1)
        return {int}, partial(_within, -end, end - 1)
    if pa.types.is_floating(kind):
        most = _FLOAT32_MAX if pa.types.is_float32(kind) else sys.float_info.max
        return {int, float}, partial(_within, -most, most)
    if pa.types.is_temporal(kind):
        is_free = dialect.pattern_of(kind) is not None
        return {str}, lambda some: is_free or all(map(_TIME_START.match, some))
    tests: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
        (pa.types.is_boolean, bool),
        (pa.types.is_struct, dict),
        (pa.types.is_list, list),
    )
    return next((({type_}, lambda _: True) for test, type_ in tests if test(kind)), None)


def _within(low: float, high: float, some: Sequence[Any]) -> bool:
    return bool(low <= min(some) and max(some) <= high)


def _refuse(_lines: bytes) -> Parsed:
    message = "Arrow cannot read these types."
    raise pa.ArrowInvalid(message)


def _parsed_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type to parse a column with: strings for times, at any depth."""
    if pa.types.is_temporal(arrow):
        return pa.string()
    if pa.types.is_struct(arrow):
        return pa.struct([(f.name, _parsed_type(f.type)) for f in arrow])
    return pa.list_(_parsed_type(arrow.value_type)) if pa.types.is_list(arrow) else arrow


def _is_beyond_arrow(arrow: pa.DataType, *, patterns: bool, nested: bool = False) -> bool:
    if pa.types.is_binary(arrow) or pa.types.is_map(arrow):
        return True
    if pa.types.is_struct(arrow) or pa.types.is_list(arrow):
        inner = [arrow.field(number).type for number in range(arrow.num_fields)]
        return any(_is_beyond_arrow(each, patterns=patterns, nested=True) for each in inner)
    if pa.types.is_temporal(arrow):
        return nested and patterns
    return nested and pa.types.is_float32(arrow)


class _Number(str):
    """A number as written in the JSON."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object that may contain a field twice."""

    __slots__ = ("pairs", "twice")

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        self.twice = set()
        if len(pairs) > len(self):
            counts = Counter(name for name, _ in pairs)
            self.twice = {name for name, count in counts.items() if count > 1}


_PLAIN_DECODER = json.JSONDecoder()
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_Number
)


def _tree(line: bytes) -> Any:
    """Return the value of a line. Raises ValueError with the reason if it is invalid."""
    try:
        return _DECODER.decode(line.strip(b" \t\r\n").decode())
    except UnicodeDecodeError as error:
        message = f"Invalid UTF-8: {error.reason}"
        raise ValueError(message) from None
    except json.JSONDecodeError as error:
        message = f"Invalid JSON: {error.msg}, at character {error.pos + 1}"
        raise ValueError(message) from None


def _row(tree: Any, columns: Mapping[str, tuple[_Value, Any]]) -> dict[str, Any]:
    if not isinstance(tree, _Object):
        raise _invalid(tree, "Expected an object, got")
    row = {}
    for name, (make, column) in columns.items():
        try:
            row[name] = _own(tree, name, make)
        except ValueError as error:
            message = f"{quote(name)} {sql_type(column.schema)}: {error}"
            raise ValueError(message) from None
    return row


def _own(tree: _Object, name: str, make: _Value) -> Any:
    if name in tree.twice:
        message = "two fields have this name"
        raise ValueError(message)
    value = tree.get(name)
    return None if value is None else make(value)


def _text(
    tree: Any,
    number: Callable[[_Number], str] = str,
    *,
    once: bool = False,
    depth: int = _DEEPEST,
) -> str:
    """Return JSON with the original numbers, or as ``number`` writes them.

    Raises ValueError for a value that is nested too deeply, and with ``once`` for duplicate
    fields and for a VARIANT's limits.
    """
    if not depth:
        raise ValueError(_TOO_DEEP)
    # One call per level, as values may be nested deeply.
    again = partial(_text, number=number, once=once, depth=depth - 1)
    match tree:
        case _Number():
            return number(tree)
        case _Object():
            if once and tree and max(map(len, tree)) > _VARIANT_NAME:
                message = f"a VARIANT field name is longer than {_VARIANT_NAME:,} characters"
                raise ValueError(message)
            if once and tree.twice:
                message = f"two fields are called {min(tree.twice)!r}"
                raise ValueError(message)
            names, values = zip(*tree.pairs, strict=True) if tree else ((), ())
            pairs = map("{}:{}".format, map(_text, names), map(again, values))
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(map(again, tree)) + "]"
        case _:
            if once and len(tree if isinstance(tree, str) else "") > _VARIANT_TEXT:
                message = f"a VARIANT string is longer than {_VARIANT_TEXT:,} characters"
                raise ValueError(message)
            return json.dumps(tree, ensure_ascii=False)


def _invalid(tree: Any, problem: str = "invalid value") -> ValueError:
    text = _text(tree)
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    # A dead letter cannot contain an unpaired surrogate.
    shown = shown.encode(errors="backslashreplace").decode()
    return ValueError(f"{problem} {shown}")


def _maker(arrow: pa.DataType, schema: Schema, dialect: Dialect) -> _Value:
    """Return a function that converts a JSON value, which is not null, to a type.

    The function raises ValueError for a value of another type.
    """
    return next(build(arrow, schema, dialect) for test, build in _MAKERS if test(arrow))


def _struct(fields: Mapping[str, _Value], tree: Any) -> dict[str, Any]:
    if not isinstance(tree, _Object):
        raise _invalid(tree)
    return {name: _own(tree, name, make) for name, make in fields.items()}


def _list(make: _Value, tree: Any) -> list[Any]:
    if not isinstance(tree, list):
        raise _invalid(tree)
    return [None if item is None else make(item) for item in tree]


def _map(key_of: _Value, make: _Value, tree: Any) -> list[tuple[Any, Any]]:
    if not isinstance(tree, _Object) or tree.twice:
        raise _invalid(tree)
    pairs = tree.items()
    return [(key_of(key), None if item is None else make(item)) for key, item in pairs]


def _key_maker(arrow: pa.DataType, schema: Schema, dialect: Dialect) -> _Value:
    """Return a function that converts a key: JSON keys are strings, also for numbers."""
    make = _maker(arrow, schema, dialect)
    if pa.types.is_boolean(arrow):
        return lambda name: make({"true": True, "false": False}.get(name, name))
    is_number = any(
        test(arrow) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    )
    return (lambda name: make(_Number(name))) if is_number else make


def _integer(end: int, tree: Any) -> int:
    if isinstance(tree, _Number) and _WHOLE.fullmatch(tree) and -end <= int(tree) < end:
        return int(tree)
    raise _invalid(tree)


def _float(most: float, tree: Any) -> float:
    if isinstance(tree, str) and tree in _NOT_FINITE:
        return _NOT_FINITE[tree]
    if not isinstance(tree, _Number):
        raise _invalid(tree)
    value = float(tree)
    if math.isinf(value) or abs(value) > most:
        raise _invalid(tree)
    return value


def _decimal(exact: Context, unit: Decimal, tree: Any) -> Decimal:
    if isinstance(tree, str) and _DECIMAL.fullmatch(tree):
        try:
            return Decimal(tree).quantize(unit, context=exact)
        except ArithmeticError:
            pass
    raise _invalid(tree)


def _exact(arrow: pa.DataType) -> tuple[Context, Decimal]:
    traps = [Inexact, InvalidOperation]
    return Context(prec=arrow.precision, traps=traps), Decimal(1).scaleb(-arrow.scale)


def _boolean(tree: Any) -> bool:
    if not isinstance(tree, bool):
        raise _invalid(tree)
    return tree


def _binary(tree: Any) -> bytes:
    if not isinstance(tree, str) or isinstance(tree, _Number):
        raise _invalid(tree)
    try:
        return base64.b64decode(tree, validate=True)
    except ValueError:
        raise _invalid(tree, "invalid Base64") from None


def _string(tree: Any) -> str:
    return _whole_text(tree if isinstance(tree, str) else _text(tree))


def variant_text(text: str) -> str:
    """Return JSON as a text that Spark parses to the same VARIANT.

    Raises ValueError with the reason if it is invalid, or not possible as a VARIANT.
    """
    try:
        return _variant(_tree(text.encode()))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _variant(tree: Any) -> str:
    return _whole_text(_text(tree, _variant_number, once=True))


def _variant_number(number: _Number) -> str:
    """Return a number's text that Spark parses to the same number, as a decimal or a float."""
    value = float(number)
    if not value and number.startswith("-"):
        return "-0e0"
    if math.isfinite(value):
        plain = _PLAIN.fullmatch(number)
        if plain and len(plain[1].lstrip("0")) + len(plain[2] or "") <= _VARIANT_DIGITS:
            return str(number)
        with suppress(InvalidOperation):  # Python has no such exponent
            if Decimal(repr(value)) == Decimal(number):
                return f"{value!r}e0" if "e" not in repr(value) else repr(value)
    shown = number if len(number) <= _SHOWN_CHARS else f"{number[:_SHOWN_CHARS]}…"
    message = f"a VARIANT cannot hold the number {shown}"
    raise ValueError(message)


def _whole_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "unpaired surrogate"
        raise ValueError(message) from None
    return str(text)


def _time(arrow: pa.DataType, schema: Schema, dialect: Dialect, tree: Any) -> Any:
    if not isinstance(tree, str) or isinstance(tree, _Number):
        raise _invalid(tree)
    is_date = pa.types.is_date(arrow)
    pattern = dialect.pattern_of(arrow)
    if (
        pattern is None
        and not schema.is_local
        and (found := _plain_time(tree, is_date=is_date)) is not None
    ):
        return found
    texts = pa.array([tree], pa.string())
    if dialect.truncates and pattern is None and not is_date:
        texts = cut_to_micros(texts)
    target = to_arrow(Schema.struct({"v": schema}))
    kinds = (pa.timestamp("us"), *[_UTC] * (not schema.is_local))
    for kind in kinds if pa.types.is_timestamp(arrow) else (arrow,):
        try:
            values = (
                pc.cast(texts, kind)
                if pattern is None
                else pattern.read(texts, truncates=dialect.truncates)
            )
            row = settled(pa.table({"v": values}), target, dialect)
            return row.column(0)[0].value
        except FAULTS:
            continue
    raise _invalid(tree)


def _plain_time(text: str, *, is_date: bool) -> Any:
    """Parse a time in the most common form; None for other forms, which Arrow reads slowly."""
    try:
        if is_date and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if not is_date and _TIMESTAMP.fullmatch(text):
            return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        pass
    return None


_MAKERS: tuple[
    tuple[
        Callable[[pa.DataType], bool],
        Callable[[Any, Any, Dialect], _Value],
    ],
    ...,
] = (
    (
        pa.types.is_struct,
        lambda kind, schema, dialect: partial(
            _struct,
            {
                f.name: _maker(f.type, member.schema, dialect)
                for f, member in zip(kind, schema.fields, strict=True)
            },
        ),
    ),
    (
        pa.types.is_list,
        lambda kind, schema, dialect: partial(
            _list, _maker(kind.value_type, schema.value_schema, dialect)
        ),
    ),
    (
        pa.types.is_map,
        lambda kind, schema, dialect: partial(
            _map,
            _key_maker(kind.key_type, schema.key_schema, dialect),
            _maker(kind.item_type, schema.value_schema, dialect),
        ),
    ),
    (pa.types.is_integer, lambda kind, *_: partial(_integer, 2 ** (kind.bit_width - 1))),
    (pa.types.is_float32, lambda *_: partial(_float, _FLOAT32_MAX)),
    (pa.types.is_floating, lambda *_: partial(_float, math.inf)),
    (pa.types.is_decimal, lambda kind, *_: partial(_decimal, *_exact(kind))),
    (pa.types.is_temporal, lambda *parts: partial(_time, *parts)),
    (pa.types.is_boolean, lambda *_: _boolean),
    (pa.types.is_binary, lambda *_: _binary),
    (pa.types.is_string, lambda _, schema, __: _variant if is_variant(schema) else _string),
)


LONGEST_DOCUMENT = 256 * 1024 * 1024
"""The maximum size of a document, decompressed: one worker parses it in memory."""
_BLANK = re.compile(r"[ \t\r\n]*")
_BREAK = re.compile(r"[\r\n]")
# The scanner only finds where values end: digits need not become numbers.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def lines_of_document(text: str, *, whole: bool) -> list[tuple[int, str]]:
    """Return the records of a document, each as one line with its line number, from 0.

    The records are the items of an array, unless ``whole`` is set; a document with any other
    value is one record. Raises ValueError with the reason if the document is invalid.
    """
    try:
        spans = list(_items(text) if not whole else _only(text))
    except RecursionError:
        message = "The value is nested too deeply"
        raise ValueError(message) from None
    except json.JSONDecodeError as error:
        message = f"Invalid JSON: {error.msg}, in line {error.lineno}"
        raise ValueError(message) from None
    records, line, before = [], 0, 0
    for start, end in spans:
        line += text.count("\n", before, start)
        before = start
        # A JSON string contains no line break, so this one is between tokens.
        records.append((line, _BREAK.sub(" ", text[start:end])))
    return records


def first_items(sample: bytes) -> list[str]:
    """Return the records of a document up to the first incomplete one."""
    text = sample.decode(errors="replace")
    records = []
    try:
        for start, end in _items(text):
            records.append(text[start:end])
    except (ValueError, RecursionError):
        pass
    return records


def _only(text: str) -> Iterator[tuple[int, int]]:
    start = _skip(text, 0)
    if start < len(text):
        _, end = _SCANNER.raw_decode(text, start)
        yield start, end
        _require_end(text, end)


def _items(text: str) -> Iterator[tuple[int, int]]:
    at = _skip(text, 0)
    if not text.startswith("[", at):
        yield from _only(text)
        return
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        _require_end(text, at + 1)
        return
    while True:
        _, end = _SCANNER.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        if text.startswith("]", at):
            _require_end(text, at + 1)
            return
        if not text.startswith(",", at):
            message = "Expecting ',' delimiter"
            raise json.JSONDecodeError(message, text, at)
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _require_end(text: str, at: int) -> None:
    if (rest := _skip(text, at)) < len(text):
        message = "Extra data"
        raise json.JSONDecodeError(message, text, rest)
