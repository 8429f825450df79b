"""Converts values between SQLite and Arrow: exact, or rejected with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import RecordError
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    FLOATS,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    Schema,
    Type,
    precision_of,
    scale_of,
)

if TYPE_CHECKING:
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected

REAL_DIGITS = 15
"""The decimal digits that a REAL stores exactly: sqlite.org/floatingpoint.html."""
INTEGER_DIGITS = 18
"""The decimal digits that always fit in an INTEGER."""
_UTC = "+00:00"
_CLASSES = {int: "integer", float: "real", str: "text", bytes: "blob"}
_TAKES: Mapping[str, set[type]] = {
    Type.BOOLEAN: {int},
    Type.INT64: {int},
    Type.FLOAT64: {int, float},
    Type.STRING: {int, float, str},
    Type.BYTES: {bytes},
    DECIMAL: {int, float, str},
    DATE: {str},
    TIME: {str},
    TIMESTAMP: {str},
}
"""The SQLite storage classes that the values of a schema may have."""
_UNFIT = (pa.ArrowException, ValueError, OverflowError)
"""Errors for a value that the schema cannot represent; undecodable text is a ValueError."""
_SHOWN = 200
_LENGTH = re.compile(r" ?\( ?[0-9]+ ?\)")
_SCHEMAS: Mapping[str, Schema] = {
    "": Schema.string(),
    "ANY": Schema.string(),
    "BOOLEAN": Schema.boolean(),
    "BOOL": Schema.boolean(),
    "DATE": Schema.date(),
    "TIME": Schema.time(),
    "DATETIME": Schema.local_timestamp(),
    "TIMESTAMP": Schema.local_timestamp(),
    "TIMESTAMP WITHOUT TIME ZONE": Schema.local_timestamp(),
    "TIMESTAMPTZ": Schema.timestamp(),
    "TIMESTAMP WITH TIME ZONE": Schema.timestamp(),
}
"""Schemas by declared type; other types are read by their affinity."""
_OF_AFFINITY: Mapping[str, Schema] = {
    "INTEGER": Schema.int64(),
    "REAL": Schema.float64(),
    "TEXT": Schema.string(),
    "BLOB": Schema.bytes(),
    "NUMERIC": Schema.string(),
}
_DECIMAL = re.compile(
    r"(?:DECIMAL|NUMERIC|DECIMAL_TEXT) ?\( ?([0-9]+) ?(?:, ?([0-9]+) ?)?\)", re.IGNORECASE
)
_TYPES: Mapping[str, str] = {
    Type.BOOLEAN.value: "BOOLEAN",
    Type.INT8.value: "INTEGER",
    Type.INT16.value: "INTEGER",
    Type.INT32.value: "INTEGER",
    Type.INT64.value: "INTEGER",
    Type.FLOAT32.value: "REAL",
    Type.FLOAT64.value: "REAL",
    Type.STRING.value: "TEXT",
    Type.BYTES.value: "BLOB",
    Type.ARRAY.value: "JSON_TEXT",
    Type.MAP.value: "JSON_TEXT",
    Type.STRUCT.value: "JSON_TEXT",
    DATE: "DATE",
    TIME: "TIME",
    VARIANT: "JSON_TEXT",
}
"""JSON_TEXT and DECIMAL_TEXT have TEXT affinity: otherwise text would become a number."""


@dataclass(frozen=True)
class StoredRows:
    """Converts rows of Python's sqlite3 to Arrow rows of a select's columns.

    Types that SQLite lacks are parsed from ISO text, as in SQLite's date and time functions; a
    time in UTC equals one without a zone. A number is never read as a time, as its epoch is
    unknown. A decimal with more digits than its type is rejected.

    Args:
        columns: The columns of the rows, in order.
        nulls: Whether values that the schema cannot represent become null if nullable.
    """

    columns: Sequence[Column]
    nulls: bool = False

    def parse(self, rows: Sequence[tuple[Any, ...]]) -> tuple[pa.RecordBatch, Rejected]:
        """Return the valid rows and the rejected rows; ``rows`` must not be empty."""
        arrays, reasons = list[pa.Array](), dict[int, str]()
        for column, values in zip(self.columns, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(_array(values, column.schema))
            except _UNFIT:
                arrays.append(self._parse_one_by_one(column, values, reasons))
        batch = pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])
        if not reasons:
            return batch, ()
        good = [number not in reasons for number in range(len(rows))]
        rejected = [(_row_text(rows[row]), why) for row, why in sorted(reasons.items())]
        return batch.filter(pa.array(good)), rejected

    def _parse_one_by_one(
        self, column: Column, values: Sequence[Any], reasons: dict[int, str]
    ) -> pa.Array:
        kept: list[Any] = []
        for row, value in enumerate(values):
            try:
                _array([value], column.schema)
                kept.append(value)
            except _UNFIT:
                kept.append(None)
                if not (self.nulls and column.schema.optional):
                    reasons.setdefault(
                        row,
                        f"The column {column.name} of type {column.type or 'none'} contains "
                        f"the {_CLASSES[type(value)]} {_shown(repr(value))}, which its schema "
                        "cannot represent.",
                    )
        return _array(kept, column.schema)


def _array(values: Sequence[Any], schema: Schema) -> pa.Array:
    kind = str(schema.name) if schema.is_logical else schema.type.value
    # Arrow would convert 2.5 to 2, bytes to strings and strings to bytes.
    classes = set(map(type, values)) - {type(None)}
    if classes - _TAKES[kind]:
        raise ValueError(classes)
    if kind == Type.BOOLEAN:
        numbers = pa.array(values, pa.int64())
        if pc.any(pc.not_equal(pc.bit_wise_and(numbers, ~1), 0)).as_py():
            raise ValueError(kind)
        return numbers.cast(pa.bool_())
    if kind == DECIMAL:
        texts = values if classes <= {str} else list(map(_decimal_text, values))
        return pa.array(texts, pa.string()).cast(to_arrow_type(schema.bare()))
    if kind == Type.STRING and classes - {str}:
        values = [None if value is None else str(value) for value in values]
    if kind not in {DATE, TIME, TIMESTAMP}:
        return pa.array(values, to_arrow_type(schema.bare()))
    return _times(pa.array(values, pa.string()), kind, schema)


def _decimal_text(value: float | str | None) -> str | None:
    # SQLite prints as many digits, and the number stored from them is the same.
    if type(value) is float:
        return f"{value:.{REAL_DIGITS}g}"
    return None if value is None else str(value)


def _times(texts: pa.Array, kind: str, schema: Schema) -> pa.Array:
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        raise ValueError(kind)  # Python has no such year
    if kind == DATE:
        return texts.cast(pa.date32())
    if kind == TIME:
        texts = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return texts.cast(pa.timestamp("us")).cast(pa.time64("us"))
    zoned = pa.timestamp("us", "UTC")
    if not schema.is_local:
        return texts.cast(zoned)
    plain = pc.replace_substring_regex(texts, r"(Z|[+]00:?00)$", "")
    return plain.cast(pa.timestamp("us")).cast(zoned)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _row_text(row: Sequence[Any]) -> str:
    text = ",".join("" if value is None else _shown(str(value)) for value in row)
    # Invalid UTF-8 was decoded to surrogates, which other code does not accept.
    return _shown(text.encode(errors="backslashreplace").decode())


def stored_columns(
    rows: pa.RecordBatch, columns: Mapping[str, Schema], types: Mapping[str, str]
) -> list[list[Any]]:
    """Return the values of columns for Python's sqlite3.

    Args:
        rows: The rows, in the types of ``to_arrow``.
        columns: The columns, in order, with their schemas.
        types: The declared types of the columns.

    Raises RecordError if SQLite would store a different value.
    """
    return [
        _stored(name, array, schema, types[name]).to_pylist()
        for array, (name, schema) in zip(rows.columns, columns.items(), strict=True)
    ]


def _stored(name: str, array: pa.Array, schema: Schema, type_: str) -> pa.Array:
    if schema.type is Type.BOOLEAN:
        return array.cast(pa.int8())
    if schema.type in FLOATS and pc.any(pc.is_nan(array)).as_py():
        raise RecordError(
            problem=f"SQLite cannot store NaN in the column {name}; it would store null.",
            fix="Replace NaN with a transform.",
            field=name,
        )
    if not schema.is_logical:
        return array
    if schema.name == TIME:
        micros = array if pa.types.is_time(array.type) else array.cast(pa.int64())
        return micros.cast(pa.time64("us")).cast(pa.string())
    if schema.name == TIMESTAMP:
        texts = array.cast(pa.timestamp("us")).cast(pa.string())
        return texts if schema.is_local else pc.binary_join_element_wise(texts, _UTC, "")
    if schema.name == DECIMAL:
        _check_digits(name, array, schema, type_)
    return array.cast(pa.string())


def _check_digits(name: str, array: pa.Array, schema: Schema, type_: str) -> None:
    if affinity(type_) in {"TEXT", "BLOB"} or decimals_are_numbers(schema):
        return
    digits = pc.utf8_trim(pc.replace_substring(array.cast(pa.string()), ".", ""), "-0")
    if pc.any(pc.greater(pc.utf8_length(digits), REAL_DIGITS)).as_py():
        raise RecordError(
            problem=f"The column {name} of type {type_} can store {REAL_DIGITS} digits, but "
            "the value has more.",
            fix="Change the type of the column to "
            f"DECIMAL_TEXT({precision_of(schema.parameters)},{scale_of(schema.parameters)}).",
            field=name,
        )


def decimals_are_numbers(schema: Schema) -> bool:
    """Return whether SQLite numbers represent all decimals of a schema exactly."""
    precision = precision_of(schema.parameters)
    most = REAL_DIGITS if scale_of(schema.parameters) else INTEGER_DIGITS
    return precision is not None and precision <= most


def affinity(type_: str) -> str:
    """Return the affinity of a declared type: sqlite.org/datatype3.html, 3.1."""
    name = type_.upper()
    for part, found in _AFFINITIES:
        if part in name:
            return found
    return "NUMERIC" if name else "BLOB"


_AFFINITIES = (
    ("INT", "INTEGER"),
    ("CHAR", "TEXT"),
    ("CLOB", "TEXT"),
    ("TEXT", "TEXT"),
    ("BLOB", "BLOB"),
    ("REAL", "REAL"),
    ("FLOA", "REAL"),
    ("DOUB", "REAL"),
)


def schema_of(type_: str, *, optional: bool = True) -> Schema:
    """Return the schema of a column's values by its declared type."""
    name = _LENGTH.sub("", type_).upper()
    schema = _SCHEMAS.get(name) or _decimal(type_) or _OF_AFFINITY[affinity(type_)]
    return schema.replaced(optional=optional)


def _decimal(type_: str) -> Schema | None:
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        return None
    precision, scale = int(found[1]), int(found[2] or 0)
    if not scale <= precision <= MAX_PRECISION or not precision:
        return None
    return Schema.decimal(scale, precision=precision)


def type_of(schema: Schema) -> str:
    """Return the declared type of a column that stores the values of a schema exactly."""
    if schema.name == DECIMAL and schema.is_logical:
        # SQLite converts decimals to numbers, which may lose digits.
        name = "DECIMAL" if decimals_are_numbers(schema) else "DECIMAL_TEXT"
        precision = precision_of(schema.parameters) or MAX_PRECISION
        return f"{name}({precision},{scale_of(schema.parameters)})"
    if schema.name == TIMESTAMP and schema.is_logical:
        return "TIMESTAMP" if schema.is_local else "TIMESTAMPTZ"
    return _TYPES[str(schema.name) if schema.is_logical else schema.type.value]
