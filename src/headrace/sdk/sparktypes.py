"""Lossless conversion of schemas to the JSON form of Spark's types and back, without pyspark.

The JSON is that of `StructType.jsonValue()` and `StructType.fromJson()`. A description is the
field's `comment`, which Spark and Delta show; other attributes that Spark lacks are in the
field's metadata, see `headrace.sdk.metadata`. Attributes of the whole row are in the metadata
of the first field, because a StructType has no metadata.

A Time is a "long", microseconds since midnight, not Spark's `time(6)`, which Delta tables do
not support. A Variant is a "string" with its JSON text, because only Spark can read VARIANT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from headrace.sdk.errors import ConfigError
from headrace.sdk.metadata import (
    PREFIX,
    metadata_of,
    native_head,
    root_metadata_of,
    with_metadata,
    with_root_metadata,
)
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIMESTAMP,
    Schema,
    Type,
    precision_of,
    scale_of,
)

Json = dict[str, Any]

_COMMENT = "comment"
_DOC = f"{PREFIX}doc"

_NAMES: Mapping[Type, str] = {
    Type.INT8: "byte",
    Type.INT16: "short",
    Type.INT32: "integer",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "binary",
}
_LOGICAL_NAMES: Mapping[str, str] = {DATE: "date", TIMESTAMP: "timestamp"}

_MEANINGS: Mapping[str, Schema] = {
    **{name: Schema(type_) for type_, name in _NAMES.items()},
    "date": Schema.date(),
    "timestamp": Schema.timestamp(),
    "timestamp_ntz": Schema.local_timestamp(),
    "variant": Schema.variant(),
    # A column of nulls.
    "void": Schema.string(optional=True),
}
_PATTERNS: tuple[tuple[re.Pattern[str], Schema], ...] = (
    (re.compile(r"(char|varchar)\(\d+\)"), Schema.string()),
    (re.compile(r"string collate \w+"), Schema.string()),
    (re.compile(r"time\(\d\)"), Schema.time()),
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def to_spark_json(schema: Schema) -> Json:
    """Return the JSON form of the StructType for rows with a STRUCT schema.

    Raises ConfigError: the schema is not a STRUCT, a Decimal's scale is not supported, or a
    struct without fields has attributes that only a field can store; `field` is the path.
    """
    if schema.type is not Type.STRUCT:
        raise ConfigError(
            problem=f"Rows need a schema of type STRUCT, not {schema.type.value}.",
            fix="Wrap it: Schema.struct({'value': schema}).",
        )
    struct = _struct(schema, "")
    root = root_metadata_of(schema)
    if root and not schema.fields:
        raise ConfigError(
            problem="In Spark, a struct without fields cannot have a name, doc or default.",
            fix="Add a field to it.",
        )
    if root:
        struct["fields"][0]["metadata"] |= root
    return struct


def from_spark_json(json: Mapping[str, Any]) -> Schema:
    """Return the schema of rows from the JSON form of a StructType.

    Besides the types of `to_spark_json`, it accepts char, varchar and collated strings as
    STRING, `timestamp_ntz` as a local Timestamp, `time` as Time, and `void` as an optional
    STRING. Raises ConfigError: a type is not supported, such as an interval; `field` is the
    path to it.
    """
    if json.get("type") != "struct":
        raise ConfigError(problem=f"Rows need a StructType, not {json.get('type')!r}.")
    root: dict[str, str] = {}
    for field in json["fields"]:
        root |= _texts(field)
    return with_root_metadata(_from_struct(json, ""), root)


def _struct(schema: Schema, path: str) -> Json:
    fields = [_field(m.name, m.schema, f"{path}.{m.name}".strip(".")) for m in schema.fields]
    return {"type": "struct", "fields": fields}


def _field(name: str, schema: Schema, path: str) -> Json:
    metadata = metadata_of(schema)
    if _DOC in metadata:
        metadata[_COMMENT] = metadata.pop(_DOC)
    return {
        "name": name,
        "type": _type(schema, path),
        "nullable": schema.optional,
        "metadata": metadata,
    }


def _type(schema: Schema, path: str) -> str | Json:
    head = native_head(schema, path)
    if head.name == DECIMAL:
        return f"decimal({precision_of(head.parameters)},{scale_of(head.parameters)})"
    if head.name is not None:
        return _LOGICAL_NAMES[head.name]
    if head.type is Type.STRUCT:
        return _struct(schema, path)
    if schema.value_schema is None:
        return _NAMES[head.type]
    if schema.key_schema is None:
        return {
            "type": "array",
            "elementType": _type(schema.value_schema, f"{path} element"),
            "containsNull": schema.value_schema.optional,
        }
    return {
        "type": "map",
        "keyType": _type(schema.key_schema, f"{path} key"),
        "valueType": _type(schema.value_schema, f"{path} value"),
        "valueContainsNull": schema.value_schema.optional,
    }


def _texts(field: Mapping[str, Any]) -> dict[str, str]:
    metadata = {k: v for k, v in (field.get("metadata") or {}).items() if isinstance(v, str)}
    if _COMMENT in metadata:
        metadata.setdefault(_DOC, metadata[_COMMENT])
    return metadata


def _from_field(field: Mapping[str, Any], path: str) -> Schema:
    native = _from_type(field["type"], path)
    optional = field.get("nullable", True) or native.optional
    return with_metadata(native.replaced(optional=optional), _texts(field))


def _from_struct(json: Mapping[str, Any], path: str) -> Schema:
    members: dict[str, Schema] = {}
    for field in json["fields"]:
        where = f"{path}.{field['name']}".strip(".")
        if field["name"] in members:
            raise ConfigError(problem="Two columns have this name.", field=where)
        members[field["name"]] = _from_field(field, where)
    return Schema.struct(members)


def _from_type(json: str | Mapping[str, Any], path: str) -> Schema:
    if isinstance(json, str):
        return _from_name(json, path)
    match json["type"]:
        case "struct":
            return _from_struct(json, path)
        case "array":
            items = _from_type(json["elementType"], f"{path} element")
            return Schema.array(_nullable(items, json["containsNull"]))
        case "map":
            keys = _from_type(json["keyType"], f"{path} key").replaced(optional=False)
            values = _from_type(json["valueType"], f"{path} value")
            return Schema.map(keys, _nullable(values, json["valueContainsNull"]))
        case other:
            raise _unknown(str(other), path)


def _nullable(schema: Schema, nullable: bool) -> Schema:  # noqa: FBT001 - Spark's own form
    return schema.replaced(optional=nullable or schema.optional)


def _from_name(name: str, path: str) -> Schema:
    if name in _MEANINGS:
        return _MEANINGS[name]
    if found := _DECIMAL.fullmatch(name):
        return Schema.decimal(int(found[2]), precision=int(found[1]))
    for pattern, schema in _PATTERNS:
        if pattern.fullmatch(name):
            return schema
    raise _unknown(name, path)


def _unknown(name: str, path: str) -> ConfigError:
    return ConfigError(
        problem=f"Spark's type {name} is not supported.",
        fix="Cast the column to another type, such as string, or remove it.",
        field=path or None,
    )


_TOKEN = re.compile(r"\s*(?:(`(?:``|[^`])+`)|(\w+)|([<>(),:]))")
_SCALARS: Mapping[str, Schema] = {
    **{name.upper(): schema for name, schema in _MEANINGS.items()},
    "TINYINT": Schema.int8(),
    "SMALLINT": Schema.int16(),
    "INT": Schema.int32(),
    "BIGINT": Schema.int64(),
    "REAL": Schema.float32(),
}
_DECIMAL_DEFAULT = (10, 0)


@lru_cache(maxsize=256)
def parse_ddl(text: str, *, field: str) -> Schema:
    """Parse DDL such as ``id BIGINT NOT NULL, tags ARRAY<STRING>`` to a STRUCT.

    Types and syntax are Spark SQL's. Array items, map values and columns without NOT NULL are
    nullable. ``field`` is the configuration key of the DDL, for errors. Raises ConfigError: the
    DDL is not valid; the message says where.
    """
    parser = _Parser(text, field)
    try:
        schema = parser.columns(end="")
    except RecursionError:
        raise ConfigError(
            problem="The types are nested too deeply.",
            field=field,
            fix="Declare the deeply nested fields as STRING or VARIANT.",
        ) from None
    if not schema.fields:
        raise parser.wrong(expected="at least one column")
    return schema


class _Parser:
    """A recursive descent parser over the tokens; an empty token marks the end."""

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
        if not max(1, scale) <= precision <= MAX_PRECISION:
            size = f"a precision from 1 to {MAX_PRECISION}, and no larger scale"
            raise self.wrong(expected=f"{size}, not DECIMAL({precision}, {scale})")
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


_WRAP = "v"


def schema_to_json(schema: Schema) -> str:
    """Serialize a schema of any type; equal schemas have equal texts."""
    return json.dumps(to_spark_json(Schema.struct({_WRAP: schema})), sort_keys=True)


def schema_from_json(text: str) -> Schema:
    """Parse the output of ``schema_to_json``."""
    return from_spark_json(json.loads(text)).fields[0].schema
