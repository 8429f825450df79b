"""Schemas: the types of values, as in Kafka Connect's data API."""

import json
import struct
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypedDict, final

from typing_extensions import Unpack, override

from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.frozen import Freezable, FrozenMap, freeze, identity

Fault = Callable[[object], str | None]


class Type(StrEnum):
    """The types of values, by Kafka Connect's names."""

    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"


WHOLE_NUMBERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
FLOATS = (Type.FLOAT32, Type.FLOAT64)
NUMBERS = (*WHOLE_NUMBERS, *FLOATS)
"""From narrow to wide: each type can be widened to any later one, as in Kafka Connect."""


def _whole(bits: int) -> Fault:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def fault(value: object) -> str | None:
        # Not isinstance: bool is a subclass of int, but not accepted here.
        fits = type(value) is int and low <= value <= high
        return None if fits else f"must be a whole number from {low} to {high}"

    return fault


def _float32(value: object) -> str | None:
    if type(value) is not float:
        return "must be a float"
    try:
        struct.pack("<f", value)
    except OverflowError:
        return "must be a float that fits into 32 bits"
    return None


def _exactly(title: str, *kinds: type) -> Fault:
    def fault(value: object) -> str | None:
        return None if type(value) in kinds else f"must be {title}"

    return fault


DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
VARIANT = "headrace.Variant"
"""Headrace's type for any JSON value: a VARIANT in Spark frames, JSON text everywhere else."""

SCALE = "scale"
LOGICAL_BASES: Mapping[str, Type] = {
    DECIMAL: Type.BYTES,
    DATE: Type.INT32,
    TIME: Type.INT32,
    TIMESTAMP: Type.INT64,
    VARIANT: Type.STRING,
}
"""The base type of each logical type."""

LOCAL = "headrace.local"
"""Headrace's parameter of a Timestamp without a time zone (wall-clock time). It is processed as
UTC, and written without a zone."""

PRIMARY_KEY = "headrace.primary.key"
"""Headrace's parameter of a STRUCT with the names of its key fields, as a JSON list."""

COLUMN_TYPE = "headrace.column.type"
"""Headrace's parameter with the native type of a database column, such as
`postgresql numeric(12,2)`. A sink for the same kind of database creates the same column."""

# Kafka's Decimal has no precision; database connectors use this parameter by convention.
PRECISION = "connect.decimal.precision"
# The maximum of Spark's decimals and Arrow's decimal128.
MAX_PRECISION = 38


def primary_key(schema: "Schema") -> tuple[str, ...]:
    """Return the key fields of a row, in order; empty if the key is unknown.

    The key is also unknown if a step has dropped one of its fields.
    """
    names = tuple(json.loads(schema.parameters.get(PRIMARY_KEY, "[]")))
    return names if all(schema.field(name) for name in names) else ()


def day_micros(value: time) -> int:
    """Return the microseconds since midnight, which represent a Time in Arrow and Spark."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def scale_of(parameters: Mapping[str, str]) -> int | None:
    """Return a Decimal's scale, or None if the parameter is missing or not an integer."""
    return _integer(parameters.get(SCALE))


def precision_of(parameters: Mapping[str, str]) -> int | None:
    """Return a Decimal's precision, or None if it has none."""
    return _integer(parameters.get(PRECISION))


def decimal_parameters(scale: int, precision: int | None) -> dict[str, str]:
    """Return the parameters of a Decimal."""
    return {SCALE: str(scale)} | ({} if precision is None else {PRECISION: str(precision)})


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _decimal_fault(value: object, parameters: Mapping[str, str]) -> str | None:
    if type(value) is not Decimal:
        return "must be a Decimal"
    if not value.is_finite():
        return "must be a finite Decimal"
    scale, precision = scale_of(parameters), precision_of(parameters)
    if scale is None:
        return "cannot be checked, as the schema's parameter scale is not an integer"
    _, digits, exponent = value.as_tuple()
    shift = int(exponent) + scale
    number = int("".join(map(str, digits)))
    if shift < 0 and number % 10**-shift:
        return f"must have at most {scale} digits after the point"
    if precision is not None and number and len(str(number)) + shift > precision:
        return f"must have at most {precision - scale} digits before the point"
    return None


def _time_fault(value: object) -> str | None:
    fits = type(value) is time and value.tzinfo is None
    return None if fits else "must be a time without a time zone"


def _timestamp_fault(value: object) -> str | None:
    fits = isinstance(value, datetime) and value.utcoffset() is not None
    return None if fits else "must be a datetime with a time zone"


_FAULTS: Mapping[str, Fault] = {
    Type.INT8: _whole(8),
    Type.INT16: _whole(16),
    Type.INT32: _whole(32),
    Type.INT64: _whole(64),
    Type.FLOAT32: _float32,
    Type.FLOAT64: _exactly("a float", float),
    Type.BOOLEAN: _exactly("true or false", bool),
    Type.STRING: _exactly("a text", str),
    Type.BYTES: _exactly("bytes", bytes, bytearray, memoryview),
    # datetime is a subclass of date, but Kafka's Date has no time part.
    DATE: _exactly("a date without a time", date),
    TIME: _time_fault,
    TIMESTAMP: _timestamp_fault,
    VARIANT: _exactly("a JSON text", str),
}
"""For each scalar and logical type except Decimal: returns what is wrong with a value, or None.
"""


class Attributes(TypedDict, total=False):
    """The optional attributes of a schema besides its type; see `Schema`."""

    optional: bool
    default: Any
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a STRUCT: its name, its index from 0, and its schema."""

    name: str
    index: int
    schema: "Schema"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schema:
    """The type of a value, with all attributes of Kafka Connect's schemas.

    Create a schema with the constructors named after the types, such as `Schema.int32()`, or
    with `Schema(type)`. A schema is immutable, hashable and picklable. Two schemas are equal if
    all their attributes are, including defaults.

    Args:
        default: The value used for a missing value; None for no default. It is stored frozen:
            lists as tuples, dictionaries as FrozenMap.
        name: A name; the name of a logical type changes the Python type of the values.
        parameters: Strings by name, such as a Decimal's scale.

    Raises ConfigError: the attributes are inconsistent, or the default does not fit the schema.
    """

    type: Type
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = FrozenMap()
    key_schema: "Schema | None" = None
    value_schema: "Schema | None" = None
    fields: tuple[Field, ...] = ()
    _identity: Hashable = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)
    _by_name: Mapping[str, Field] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "parameters", FrozenMap(self.parameters))
        put(self, "fields", tuple(self.fields))
        _check_parts(self)
        _check_fields(self)
        if self.default is not None:
            _check_default(self)
            put(self, "default", freeze(self.default))
        parts = (self.key_schema, self.value_schema, self.fields)
        texts = (self.name, self.version, self.doc, self.parameters)
        put(self, "_identity", (self.type, self.optional, identity(self.default), texts, parts))
        put(self, "_hash", hash(self._identity))
        put(self, "_by_name", {field.name: field for field in self.fields})

    @classmethod
    def int8(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.INT8, **attributes)

    @classmethod
    def int16(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.INT16, **attributes)

    @classmethod
    def int32(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.INT32, **attributes)

    @classmethod
    def int64(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.INT64, **attributes)

    @classmethod
    def float32(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.FLOAT32, **attributes)

    @classmethod
    def float64(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.FLOAT64, **attributes)

    @classmethod
    def boolean(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.BOOLEAN, **attributes)

    @classmethod
    def string(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.STRING, **attributes)

    @classmethod
    def bytes(cls, **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.BYTES, **attributes)

    @classmethod
    def array(cls, items: "Schema", **attributes: Unpack[Attributes]) -> "Schema":
        return cls(Type.ARRAY, value_schema=items, **attributes)

    @classmethod
    def map(
        cls, keys: "Schema", values: "Schema", **attributes: Unpack[Attributes]
    ) -> "Schema":
        return cls(Type.MAP, key_schema=keys, value_schema=values, **attributes)

    @classmethod
    def struct(
        cls,
        fields: "Mapping[str, Schema] | None" = None,
        **attributes: Unpack[Attributes],
    ) -> "Schema":
        return cls(Type.STRUCT, fields=_fields(fields or {}), **attributes)

    @classmethod
    def decimal(
        cls, scale: int, *, precision: int | None = None, **attributes: Unpack[Attributes]
    ) -> "Schema":
        """A Decimal with `scale` digits after the point, and `precision` digits in total."""
        parameters = decimal_parameters(scale, precision) | dict(
            attributes.get("parameters", {})
        )
        merged: Attributes = {**attributes, "parameters": parameters}
        return cls.logical(DECIMAL, **merged)

    @classmethod
    def date(cls, **attributes: Unpack[Attributes]) -> "Schema":
        """A day, as `datetime.date`."""
        return cls.logical(DATE, **attributes)

    @classmethod
    def time(cls, **attributes: Unpack[Attributes]) -> "Schema":
        """A time of day, as a naive `datetime.time`."""
        return cls.logical(TIME, **attributes)

    @classmethod
    def timestamp(cls, **attributes: Unpack[Attributes]) -> "Schema":
        """An instant, as an aware `datetime.datetime`."""
        return cls.logical(TIMESTAMP, **attributes)

    @classmethod
    def local_timestamp(cls, **attributes: Unpack[Attributes]) -> "Schema":
        """A Timestamp without a time zone, processed as UTC by convention; see `LOCAL`."""
        merged: Attributes = {**attributes, "parameters": {LOCAL: "true"}}
        return cls.timestamp(**merged)

    @classmethod
    def variant(cls, **attributes: Unpack[Attributes]) -> "Schema":
        """Any JSON value, as JSON text; a VARIANT in Spark frames."""
        return cls.logical(VARIANT, **attributes)

    @classmethod
    def logical(cls, logical_name: str, **attributes: Unpack[Attributes]) -> "Schema":
        """A logical type by its schema name; version 1 by default."""
        merged: Attributes = {"version": 1, **attributes, "name": logical_name}
        return cls(LOGICAL_BASES[logical_name], **merged)

    @property
    def is_local(self) -> bool:
        """Whether this is a Timestamp without a time zone."""
        return self.name == TIMESTAMP and LOCAL in self.parameters

    @property
    def is_logical(self) -> bool:
        """Whether this is a Decimal, Date, Time or Timestamp."""
        return self.name is not None and LOGICAL_BASES.get(self.name) is self.type

    def replaced(self, **attributes: Unpack[Attributes]) -> "Schema":
        """Return this schema with these attributes replaced."""
        return replace(self, **attributes)

    def bare(self) -> "Schema":
        """Return this schema without `default`, `doc` and `optional`."""
        if self.default is None and self.doc is None and not self.optional:
            return self
        return replace(self, default=None, doc=None, optional=False)

    def with_fields(self, fields: "Mapping[str, Schema]") -> "Schema":
        """Return this STRUCT with other fields, and without a default."""
        return replace(self, fields=_fields(fields), default=None)

    def walk(self) -> "Iterator[Schema]":
        """Yield this schema and all nested schemas, at any depth."""
        yield self
        for part in (*(f.schema for f in self.fields), self.key_schema, self.value_schema):
            if part is not None:
                yield from part.walk()

    def field(self, name: str) -> Field | None:
        """Return the field with that name, or None."""
        return self._by_name.get(name)

    @override
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema):
            return NotImplemented
        return self._hash == other._hash and self._identity == other._identity

    @override
    def __hash__(self) -> int:
        return self._hash

    @override
    def __repr__(self) -> str:
        # Only attributes that are set: most schemas have only a type.
        facts = {
            "optional": self.optional or None,
            "default": self.default,
            "name": self.name,
            "version": self.version,
            "doc": self.doc,
            "parameters": dict(self.parameters) or None,
            "key_schema": self.key_schema,
            "value_schema": self.value_schema,
            "fields": {field.name: field.schema for field in self.fields} or None,
        }
        shown = [f"{name}={fact!r}" for name, fact in facts.items() if fact is not None]
        return f"Schema({', '.join([self.type.value, *shown])})"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # The cached hash is valid only in this process, because string hashes are salted.
        parts = (self.key_schema, self.value_schema, self.fields)
        texts = (self.name, self.version, self.doc, self.parameters)
        return Schema, (self.type, self.optional, self.default, *texts, *parts)


class StructValue(Freezable):
    """The interface of a struct that `validate_value` needs; implemented only by `Struct`."""

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The STRUCT schema of this value."""

    @abstractmethod
    def validate(self) -> None:
        """Raise RecordError unless all required fields have values."""


def _fields(fields: Mapping[str, Schema]) -> tuple[Field, ...]:
    return tuple(
        Field(name, index, schema) for index, (name, schema) in enumerate(fields.items())
    )


def _check_parts(schema: Schema) -> None:
    parts = {"key_schema": schema.key_schema, "value_schema": schema.value_schema}
    needed = {Type.ARRAY: {"value_schema"}, Type.MAP: set(parts)}.get(schema.type, set())
    for name, part in parts.items():
        if (part is not None) != (name in needed):
            verb = "needs" if name in needed else "has no"
            raise ConfigError(
                problem=f"The type {schema.type.value} {verb} {name}.", field=schema.name
            )
    if schema.is_logical and schema.name == DECIMAL:
        parameters, fix = schema.parameters, "Create it with Schema.decimal(scale)."
        if scale_of(parameters) is None:
            problem = "A Decimal needs the parameter scale, an integer."
            raise ConfigError(problem, fix=fix)
        if (
            PRECISION in parameters
            and not 1 <= (precision_of(parameters) or 0) <= MAX_PRECISION
        ):
            problem = f"The precision of a Decimal must be from 1 to {MAX_PRECISION}."
            raise ConfigError(problem, fix=fix)


def _check_fields(schema: Schema) -> None:
    if schema.fields and schema.type is not Type.STRUCT:
        raise ConfigError(
            problem=f"The type {schema.type.value} has no fields.", field=schema.name
        )
    seen: set[str] = set()
    for index, member in enumerate(schema.fields):
        if not member.name:
            raise ConfigError(problem="A field needs a name.", field=schema.name)
        if member.name in seen:
            raise ConfigError(
                problem=f"Cannot create field because of field name duplication {member.name}",
                fix="Use a different name for each field of a struct.",
                field=member.name,
            )
        if member.index != index:
            raise ConfigError(problem=f"The field's index must be {index}.", field=member.name)
        seen.add(member.name)


def _check_default(schema: Schema) -> None:
    try:
        # A struct cannot have a schema that contains the struct itself.
        validate_value(replace(schema, default=None), schema.default)
    except RecordError as error:
        where = error.field or schema.name
        raise ConfigError(
            problem=f"Invalid default value. {error.problem}", field=where
        ) from error


def validate_value(schema: Schema, value: object, *, path: str = "") -> None:
    """Check recursively that a value fits a schema.

    Errors begin like Kafka Connect's. Python types must match exactly, as in Kafka Connect: a
    bool is not an integer, an integer is not a float, a datetime is not a date. Lists and
    tuples are arrays. `path` is the path of the value, for the error. Raises RecordError: the
    value does not fit; `field` is the path to the invalid part.
    """
    if value is None:
        if not schema.optional:
            raise RecordError(
                problem=f'Invalid value: null used for required field: "{path}", schema type: '
                f"{schema.type.value}",
                field=path or None,
            )
        return
    kind = str(schema.name) if schema.is_logical else schema.type
    if kind == DECIMAL:
        fault = _decimal_fault(value, schema.parameters)
    elif kind in _FAULTS:
        fault = _FAULTS[kind](value)
    else:
        fault = _COMPOUND_FAULTS[schema.type](schema, value, path)
    if fault is not None:
        named = f' "{schema.name}"' if schema.name else ""
        where = f' for field: "{path}"' if path else ""
        # Kafka Connect's message, except for "Python".
        raise RecordError(
            problem=f"Invalid Python object for schema{named} with type {schema.type.value}: "
            f"class {type(value).__name__}{where}: it {fault}.",
            field=path or None,
        )


def _array(schema: Schema, value: object, path: str) -> str | None:
    if not isinstance(value, list | tuple):
        return "must be a list"
    if schema.value_schema is not None:
        for index, item in enumerate(value):
            validate_value(schema.value_schema, item, path=f"{path}[{index}]")
    return None


def _map(schema: Schema, value: object, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a mapping"
    if schema.key_schema is not None and schema.value_schema is not None:
        for key, item in value.items():
            validate_value(schema.key_schema, key, path=f"{path} key")
            validate_value(schema.value_schema, item, path=f"{path}[{key!r}]")
    return None


def _struct(schema: Schema, value: object, _: str) -> str | None:
    if not isinstance(value, StructValue):
        return "must be a Struct"
    if value.schema != schema and value.schema.bare() != schema.bare():
        return "must match in all but optional, default and doc: Struct schemas do not match"
    value.validate()
    return None


_COMPOUND_FAULTS: Mapping[Type, Callable[[Schema, object, str], str | None]] = {
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}
