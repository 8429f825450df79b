"""SQL texts: literals, names, types, paths to fields, and the columns of a frame of records."""

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
"""SQL of options with which ``to_json`` drops neither fields that are null nor microseconds."""
_LITERAL = re.compile(r"'((?:[^'\\]|\\['\\])*)'\Z")
_ESCAPE = re.compile(r"\\(.)")
CALLS_JAVA = ("reflect", "try_reflect", "java_method")
"""Functions of SQL that call any method of Java."""
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
"""Functions of SQL that open files or addresses which their options or their values name. So
does ``from_avro`` with ``avroSchemaUrl``, which converters need without it."""
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
    """Write a string as a Spark SQL literal, in a form no escape can break out of."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal_text(sql: str) -> str | None:
    """Return the string that ``literal`` wrote as ``sql``; None for any other SQL."""
    found = _LITERAL.match(sql)
    return found and _ESCAPE.sub(r"\1", found.group(1))


def sql_type(schema: Schema, *, variant: str = "VARIANT", local: str = "TIMESTAMP") -> str:
    """Give the type that values of a schema have in Spark, all parts of it nullable.

    A Time is a BIGINT, microseconds since midnight; see `to_spark_json`. A Variant is of the
    type `variant`: a VARIANT, as in frames, or the STRING of its text. A Timestamp without a
    zone is of the type `local`: a TIMESTAMP, as in frames, or a TIMESTAMP_NTZ. Raises
    ConfigError: a Decimal's scale does not fit into Spark's types.
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
    """Give the null of a schema's type."""
    return f"CAST(NULL AS {sql_type(schema)})"


def sql_value(schema: Schema, value: Any) -> str:
    """Give a value, such as a default, as a constant of the schema's type."""
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
    "How fields are named. V1: the whole text is the name of one field at the top. V2: the "
    "names on the way to a field are separated by dots; a name that holds dots goes in "
    "back-ticks, as in `foo.bar`.baz."
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The names on the way to a field, from the outside in; at least one.

    Args:
        text: As the user wrote it, for messages.
    """

    steps: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, text: str, version: str = "V1") -> FieldPath:
        """Read a path.

        In V2 a back-tick within back-ticks ends the name where a dot or the text's end follows,
        unless a backslash is before it. Raises ConfigError: a back-tick is not closed.
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
        """The path to the struct that holds the field; None at the top."""
        return FieldPath(self.steps[:-1], self.text) if len(self.steps) > 1 else None


class FieldSyntax(Settings):
    """The setting by which transforms of fields choose the syntax of paths."""

    field_syntax_version: str = setting(
        _DOC,
        default="V1",
        validator=ValidString("V1", "V2", any_case=True),
        importance=Importance.HIGH,
    )

    def field_path(self, text: str) -> FieldPath:
        """Read a path in the syntax that was chosen."""
        return FieldPath.parse(text, self.field_syntax_version)

    def field_paths(self, texts: Iterable[str]) -> list[FieldPath]:
        """Read paths in the syntax that was chosen."""
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
    # A dot at the end is followed by one more name, the empty one.
    return [*steps, ""] if text.endswith(".") else steps


def _quoted(text: str, opening: int) -> tuple[str, int]:
    """Give the name between back-ticks, and where the next name begins."""
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
        fix="Close the back-tick, or put a backslash before it.",
    )


_FEW = 20
_BETWEEN = "\x1f"


def selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Do what ``frame.selectExpr`` does, in few calls of Java however many they are."""
    jdf = getattr(frame, "_jdf", None)
    if len(columns) <= _FEW or jdf is None or any(_BETWEEN in column for column in columns):
        return frame.selectExpr(*columns)
    # PySpark sends each text by itself, at a tenth of a millisecond.
    session = frame.sparkSession
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no other way
    strings = jvm.org.apache.hadoop.util.StringUtils
    texts = strings.getStringCollection(_BETWEEN.join(columns), _BETWEEN)
    return type(frame)(jdf.selectExpr(jvm.PythonUtils.toSeq(texts)), session)


def rows(
    frame: DataFrame, *, timestamp: str | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """Turn a frame of plain rows into records, one a row.

    Args:
        frame: The rows; all columns become fields of the value.
        timestamp: Name of a TIMESTAMP column to copy into the record's timestamp.
        keys: Names of columns to copy into the record's key.
    """
    columns = ["struct(*) AS value"]
    if keys:
        pairs = ", ".join(f"{literal(name)}, {quote(name)}" for name in keys)
        columns.append(f"named_struct({pairs}) AS key")
    if timestamp:
        columns.append(f"CAST({quote(timestamp)} AS TIMESTAMP) AS timestamp")
    return frame.selectExpr(*columns)
