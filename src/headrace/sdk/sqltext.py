"""SQL text for Spark: literals, names, types, field paths, and record columns of frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.sdk.config import Importance, Settings, ValidString, setting
from headrace.sdk.errors import ConfigError
from headrace.sdk.metadata import native_head
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    TIMESTAMP,
    VARIANT,
    Schema,
    Type,
    day_micros,
    precision_of,
    scale_of,
)
from headrace.sdk.struct import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', "
    "'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX', "
    "'timestampNTZFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS')"
)
"""SQL of the options with which ``to_json`` keeps null fields and microseconds."""
_LITERAL = re.compile(r"'((?:[^'\\]|\\['\\])*)'\Z")
_ESCAPE = re.compile(r"\\(.)")
CALLS_JAVA = ("reflect", "try_reflect", "java_method")
"""SQL functions that can call any Java method."""
_XPATHS = (
    "boolean", "double", "float", "int", "long", "number", "short", "string",
)  # fmt: skip
OPENS_FILES = (
    "from_protobuf",
    "from_xml",
    "schema_of_avro",
    "schema_of_xml",
    "to_protobuf",
    "xpath",
    *(f"xpath_{kind}" for kind in _XPATHS),
)
"""SQL functions that open files or URLs named in their options or values. ``from_avro`` with
``avroSchemaUrl`` does so too, but converters need it without that option."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_NAMES: Mapping[Type, str] = {
    Type.INT8: "TINYINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "FLOAT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "STRING",
    Type.BYTES: "BINARY",
}
_LOGICAL_NAMES: Mapping[str, str] = {DATE: "DATE", TIMESTAMP: "TIMESTAMP"}


def quote(identifier: str) -> str:
    """Quote a column or field name for Spark SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a string as a Spark SQL literal, escaped so that no text can break out of it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal_text(sql: str) -> str | None:
    """Parse a literal from ``literal``; return None for any other SQL."""
    found = _LITERAL.match(sql)
    return found and _ESCAPE.sub(r"\1", found.group(1))


def sql_type(schema: Schema, *, variant: str = "VARIANT", local: str = "TIMESTAMP") -> str:
    """Return the Spark SQL type for a schema, with all parts nullable.

    A Time is a BIGINT, microseconds since midnight; see `to_spark_json`. A Variant has the type
    `variant`: VARIANT, as in frames, or STRING for its text. A Timestamp without a time zone
    has the type `local`: TIMESTAMP, as in frames, or TIMESTAMP_NTZ. Raises ConfigError: a
    Decimal's scale does not fit into Spark's types.
    """

    def inner(part: Schema) -> str:
        return sql_type(part, variant=variant, local=local)

    if schema.is_logical and schema.name == VARIANT:
        return variant
    if schema.is_local:
        return local
    head = native_head(schema)
    if head.name == DECIMAL:
        return f"DECIMAL({precision_of(head.parameters)}, {scale_of(head.parameters)})"
    if head.name is not None:
        return _LOGICAL_NAMES[head.name]
    if head.type is Type.STRUCT:
        fields = (f"{quote(field.name)}: {inner(field.schema)}" for field in schema.fields)
        return f"STRUCT<{', '.join(fields)}>"
    if schema.value_schema is None:
        return _NAMES[head.type]
    if schema.key_schema is None:
        return f"ARRAY<{inner(schema.value_schema)}>"
    return f"MAP<{inner(schema.key_schema)}, {inner(schema.value_schema)}>"


def sql_null(schema: Schema) -> str:
    """Return the SQL for null with a schema's type."""
    return f"CAST(NULL AS {sql_type(schema)})"


def sql_value(schema: Schema, value: Any) -> str:
    """Return the SQL for a value, such as a default, as a constant of the schema's type."""
    if value is None:
        return sql_null(schema)
    if isinstance(value, datetime):
        return f"timestamp_micros({(value - _EPOCH) // _MICROSECOND})"
    if schema.is_logical and schema.name == VARIANT:
        return f"parse_json({literal(value)})"
    text = _compound(schema, value) or _scalar(value)
    return f"CAST({text} AS {sql_type(schema)})"


def _scalar(value: Any) -> str:
    writer = next((w for kind, w in _WRITERS.items() if isinstance(value, kind)), None)
    return literal(str(value)) if writer is None else writer(value)


def _compound(schema: Schema, value: Any) -> str | None:
    if isinstance(value, Struct):
        pairs = (
            f"{literal(f.name)}, {sql_value(f.schema, value.get_without_default(f))}"
            for f in value.schema.fields
        )
        return f"named_struct({', '.join(pairs)})"
    if schema.key_schema is not None and schema.value_schema is not None:
        keys, values = schema.key_schema, schema.value_schema
        items = (f"{sql_value(keys, k)}, {sql_value(values, v)}" for k, v in value.items())
        return f"map({', '.join(items)})"
    if schema.value_schema is not None:
        member = schema.value_schema
        return f"array({', '.join(sql_value(member, item) for item in value)})"
    return None


_WRITERS: Mapping[type | tuple[type, ...], Callable[[Any], str]] = {
    (bytes, bytearray, memoryview): lambda value: f"X'{bytes(value).hex()}'",
    bool: lambda value: str(value).lower(),
    time: lambda value: str(day_micros(value)),
    Decimal: lambda value: literal(format(value, "f")),
    date: lambda value: literal(value.isoformat()),
}


_DOC = (
    "The syntax of field paths. V1: the whole text is the name of one top-level field. V2: "
    "names on the path to a field are separated by dots; a name that contains dots goes in "
    "backticks, as in `foo.bar`.baz."
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The names on the path to a field, outermost first; at least one.

    Args:
        text: The path as the user wrote it, for messages.
    """

    steps: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, text: str, version: str = "V1") -> FieldPath:
        """Parse a path.

        In V2, a backtick inside backticks ends the name if a dot or the end of the text
        follows, unless a backslash precedes it. Raises ConfigError: a backtick is not closed.
        """
        if version.upper() == "V1":
            return cls((text,), text)
        return cls(tuple(_steps(text)) or ("",), text)

    @property
    def name(self) -> str:
        """The name of the field itself."""
        return self.steps[-1]

    @property
    def parent(self) -> FieldPath | None:
        """The path to the struct that contains the field; None at the top."""
        return FieldPath(self.steps[:-1], self.text) if len(self.steps) > 1 else None


class FieldSyntax(Settings):
    """The setting for the syntax of field paths in transforms."""

    field_syntax_version: str = setting(
        _DOC,
        default="V1",
        validator=ValidString("V1", "V2", any_case=True),
        importance=Importance.HIGH,
    )

    def field_path(self, text: str) -> FieldPath:
        """Parse a path in the configured syntax."""
        return FieldPath.parse(text, self.field_syntax_version)

    def field_paths(self, texts: Iterable[str]) -> list[FieldPath]:
        """Parse paths in the configured syntax."""
        return [self.field_path(text) for text in texts]


def _steps(text: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            name, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            name, at = text[at:end], end + 1
        steps.append(name)
    # After a dot at the end comes one more name, which is empty.
    return [*steps, ""] if text.endswith(".") else steps


def _quoted(text: str, opening: int) -> tuple[str, int]:
    """Return the name between backticks, and the start of the next name."""
    name: list[str] = []
    start = at = opening + 1
    while (at := text.find("`", at)) >= 0:
        escaped = text[at - 1] == "\\"
        last = at == len(text) - 1
        if last and escaped:
            break
        if last or (text[at + 1] == "." and not escaped):
            return "".join([*name, text[start:at]]), at + 2
        if text[at + 1] == ".":
            name += [text[start : at - 1], "`"]
            start = at + 1
        at += 1
    raise ConfigError(
        problem=f"Incomplete backtick pair in path: [{text}], consider adding a backslash "
        f"before backtick at position {opening} to escape it",
        fix="Close the backtick, or put a backslash before it.",
    )


_FEW = 20
_BETWEEN = "\x1f"


def selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select columns like ``frame.selectExpr``, with few Java calls even for many columns."""
    jdf = getattr(frame, "_jdf", None)
    if len(columns) <= _FEW or jdf is None or any(_BETWEEN in column for column in columns):
        return frame.selectExpr(*columns)
    # PySpark would send each string separately, which takes a tenth of a millisecond each.
    session = frame.sparkSession
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no public API for this
    strings = jvm.org.apache.hadoop.util.StringUtils
    texts = strings.getStringCollection(_BETWEEN.join(columns), _BETWEEN)
    return type(frame)(jdf.selectExpr(jvm.PythonUtils.toSeq(texts)), session)


def rows(
    frame: DataFrame, *, timestamp: str | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """Turn a frame of plain rows into records, one per row.

    Args:
        frame: The rows; all columns become fields of the value.
        timestamp: The name of a TIMESTAMP column to copy to the record's timestamp.
        keys: The names of columns to copy to the record's key.
    """
    columns = ["struct(*) AS value"]
    if keys:
        pairs = ", ".join(f"{literal(name)}, {quote(name)}" for name in keys)
        columns.append(f"named_struct({pairs}) AS key")
    if timestamp:
        columns.append(f"CAST({quote(timestamp)} AS TIMESTAMP) AS timestamp")
    return frame.selectExpr(*columns)
