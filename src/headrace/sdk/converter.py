"""Converters: serialize a part of a record to bytes, and deserialize it.

A converter never processes single records. It returns an SQL expression if Spark is fast
enough, or a function over Arrow arrays if that is faster. A value that cannot be converted
does not raise: its record gets a fault, which the runtime turns into an error that keeps the
bytes, with Kafka Connect's stage names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headrace.sdk.config import Config, Configured
from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Schema, Type
from headrace.sdk.transform import DATA_EXCEPTION

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk.connector import SchemaMemory

CONVERTER_TYPE = "converter.type"
"""The key for the part that a converter is used for; the runtime sets it."""


class RecordPart(StrEnum):
    """The parts of a record that a converter can convert."""

    KEY = "key"
    VALUE = "value"
    HEADER = "header"

    @property
    def stage(self) -> str:
        """Kafka Connect's name of the stage that converts this part."""
        return f"{self.name}_CONVERTER"


class RuntimeRegistry(Protocol):
    """The runtime's own schema registry.

    The SDK does not define its methods: the registry and the converters that use it share a
    Protocol, and a converter checks with ``isinstance`` whether it supports the registry.
    """

    def close(self) -> None:
        """Release connections and files; the next call opens them again."""


@dataclass(frozen=True, kw_only=True)
class ConverterContext:
    """The runtime services for a converter.

    Args:
        schemas: Stores the schema of the topic's values, for values without a schema.
        registry: The runtime's own schema registry, if any; the default if a configuration
            names no registry.
    """

    part: RecordPart = RecordPart.VALUE
    topic: str = ""
    schemas: SchemaMemory | None = None
    registry: RuntimeRegistry | None = None

    @property
    def memory_name(self) -> str:
        """The name under which the schema of this part is stored."""
        return f"{self.topic}#{self.part.value}"


@dataclass(frozen=True)
class Fault:
    """A condition under which a value cannot be converted, and the error.

    Args:
        condition: SQL that is true for such values; it may be null for others.
        exception: The class of the error, by Kafka Connect's name.
    """

    condition: str
    message: str
    exception: str = DATA_EXCEPTION


@dataclass(frozen=True)
class ArrowCall:
    """A call of a function over Arrow arrays, for conversions that SQL cannot express.

    The result is a column; `called` returns its name.

    Args:
        argument: SQL over the input column and ``made``. The function receives all rows of a
            batch, so it should handle nulls cheaply.
        function: Runs in Spark's Python workers, so it is pickled. It must return as many
            values as it receives.
        type: The type of the results, as DDL.
    """

    argument: str
    function: Callable[[pa.Array], pa.Array]
    type: str

    @staticmethod
    def called(made: str) -> str:
        """Return the name of the result's column."""
        return f"{made}_called"


@dataclass(frozen=True)
class Converted:
    """The SQL expressions that convert a column.

    Args:
        made: SQL over the input column, computed once, to which ``sql`` and the faults refer by
            the name passed to the converter; None if not needed.
        faults: Evaluated in order; the first whose condition is true applies to the record.
        call: Runs after ``made``; ``sql`` and the faults may refer to its result. Not supported
            in the result of an ExpressionDecoder.
    """

    sql: str
    schema: Schema
    made: str | None = None
    faults: tuple[Fault, ...] = ()
    call: ArrowCall | None = None


@dataclass(frozen=True)
class Group:
    """Values of one schema.

    Args:
        values: An array of type ``to_arrow_type(schema)``.
        rows: The row number of each value, increasing; None for all rows.
    """

    schema: Schema
    values: pa.Array
    rows: Sequence[int] | None = None


@dataclass(frozen=True)
class Decoded:
    """The deserialized values of one Arrow array of bytes.

    A row that is in no group and has no fault is null.

    Args:
        groups: The values by schema; no row is in two groups.
        faults: The error class and message by row number.
    """

    groups: Sequence[Group] = ()
    faults: Mapping[int, tuple[str, str]] = field(default_factory=dict)


class ExpressionDecoder(ABC):
    """A decoder that uses an SQL expression."""

    def tokens(self, raw: str) -> str | None:
        """Return SQL for the token that identifies a value's schema, such as a registry id.

        ``raw`` is a column of type BINARY. Return None (the default) if all values have one
        known schema. Otherwise the runtime collects the distinct tokens of each batch, in a
        job that reads only the tokens, before it calls ``decode``.
        """
        return None

    @abstractmethod
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        """Return the expressions that decode ``raw``. Called once per batch, on the driver.

        ``made`` is the name of ``Converted.made``, if it is used. ``tokens`` are the tokens of
        the batch, and possibly one of an earlier batch; empty if ``tokens()`` returns None.
        """


class ArrowDecoder(ABC):
    """A decoder of Arrow arrays, on executors: it must be picklable, and should be small."""

    remembers: bool = False
    """Whether the schema is inferred from the values: it is then merged with the stored schema,
    stored, and passed to ``start``."""

    def tokens(self, raw: str) -> str | None:
        """Return SQL for the schema token of a value; see ``ExpressionDecoder.tokens``."""
        return None

    def start(self, known: Schema | None) -> None:  # noqa: B027 - optional
        """Receive the stored schema. Called on the driver, once per batch."""

    def prepare(self, tokens: Sequence[Any]) -> None:  # noqa: B027 - optional
        """Receive the tokens of the batch. Called after ``start``, if it has ``tokens``.

        As for ``ExpressionDecoder``, one token may be of an earlier batch. Query the registry
        here rather than on executors, and store in the object what executors need.
        """

    @abstractmethod
    def decode(self, raw: pa.Array) -> Decoded:
        """Decode an array of type binary. Called for each batch of a partition in turn.

        The same object decodes a whole partition, so it may keep state from batch to batch.
        """

    def merged(self, known: Schema, new: Schema) -> Schema:
        """Return the schema that fits values of both schemas, on the driver.

        Raises ConfigError: there is no such schema; the values of ``new`` are then faults.
        """
        from headrace.sdk.schema_evolution import evolve  # noqa: PLC0415 - spares executors

        return evolve(known, new)

    def fitted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        """Convert values toward the type of the merged schema, as far as a cast cannot.

        Called on executors for values of another type; the result is then cast.
        """
        return values


class Converter(Configured, ABC):
    """Serializes a part of a record to bytes, and deserializes it.

    The runtime creates one for each part and topic, with the keys that follow
    ``key.converter.``, ``value.converter.`` or ``header.converter.``.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    parts: ClassVar[frozenset[RecordPart]] = frozenset({RecordPart.KEY, RecordPart.VALUE})
    """The parts that it can convert."""

    def __init__(self, config: Config, context: ConverterContext) -> None:
        self.config = config
        self.settings = self.settings_class().from_config(config)
        self.context = context

    @abstractmethod
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        """Return the expressions that encode a column as BYTES. Called once per batch.

        The column has values of ``schema``; ``made`` is the name of ``Converted.made``, if it
        is used. Raises ConfigError: values of this schema can never be converted.
        """

    @abstractmethod
    def decoder(self) -> ExpressionDecoder | ArrowDecoder:
        """Return the decoder. Called once per batch, on the driver."""

    def close(self) -> None:
        """Close connections. Called when the task stops, and before it starts again."""

    def refused(self, schema: Schema, takes: str) -> ConfigError:
        """Return the error for a schema that the converter cannot encode."""
        kind = schema.name or schema.type.value
        return ConfigError(
            problem=f"{type(self).__name__} accepts {takes}, not {kind}.",
            field=f"{self.context.part}.converter",
            fix="Choose another converter, or cast the part with a transform.",
        )


class HeaderConverter(ABC):
    """Serializes and deserializes the values of headers; a Converter may implement it too.

    Headers are an ``array<struct<key:string,value:string,type:string>>``: the value is text,
    and ``type`` is the name of its original type. A value serialized to bytes has no type. The
    schema in the results of these methods is ignored.
    """

    @abstractmethod
    def encode_headers(self, headers: str, made: str) -> Converted:
        """Return the headers with encoded values; see ``Converter.encode``."""

    @abstractmethod
    def decode_headers(self, headers: str, made: str) -> Converted:
        """Return the headers with decoded values and their types; see ``Converter.decoder``."""


HEADERS = Schema.array(
    Schema.struct(
        {name: Schema.string(optional=True) for name in ("key", "value", "type")},
        optional=True,
    ),
    optional=True,
)
"""The schema of headers."""


def is_raw(schema: Schema) -> bool:
    """Return whether a part has a type that a converter can decode: bytes or a string."""
    return schema.type in {Type.BYTES, Type.STRING} and not schema.is_logical
