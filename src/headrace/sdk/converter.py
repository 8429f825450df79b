"""Converters: a part of a record to bytes and back.

A converter never sees one record at a time. It gives Spark an SQL expression where Spark is
fast, or a function over Arrow arrays where that is faster. A value that cannot be converted
never raises: its record gets a fault, and the runtime makes an error of it that keeps the
bytes, under Kafka Connect's stage names.
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
"""The key that says which part a converter is for; the runtime sets it."""


class RecordPart(StrEnum):
    """The parts of a record that a converter may be for."""

    KEY = "key"
    VALUE = "value"
    HEADER = "header"

    @property
    def stage(self) -> str:
        """Kafka Connect's name of the stage that converts this part."""
        return f"{self.name}_CONVERTER"


class RuntimeRegistry(Protocol):
    """The schema registry that the runtime itself has.

    The SDK does not say what can be asked of it: its maker and the converters that use it
    agree on a Protocol, and a converter checks with ``isinstance`` that it is one it knows.
    """

    def close(self) -> None:
        """Let go of connections and files; the next call opens them again."""


@dataclass(frozen=True, kw_only=True)
class ConverterContext:
    """What the runtime offers a converter.

    Args:
        schemas: Remembers the schema of the topic's values, for those that carry none.
        registry: The schema registry that the runtime itself has, if it has one; it is the
            one meant where a configuration names none.
    """

    part: RecordPart = RecordPart.VALUE
    topic: str = ""
    schemas: SchemaMemory | None = None
    registry: RuntimeRegistry | None = None

    @property
    def memory_name(self) -> str:
        """The name under which the schema of this part is remembered."""
        return f"{self.topic}#{self.part.value}"


@dataclass(frozen=True)
class Fault:
    """Which values cannot be converted, and why.

    Args:
        condition: SQL, true for them; it may be null for the others.
        exception: The class of the error, as Kafka Connect names it.
    """

    condition: str
    message: str
    exception: str = DATA_EXCEPTION


@dataclass(frozen=True)
class ArrowCall:
    """A call of a function over Arrow arrays, for what no expression does.

    Its result is a column whose name `called` tells.

    Args:
        argument: SQL over the column that is given and ``made``. A null of it should be
            cheap to the function: it gets all rows of a batch.
        function: Runs in Spark's Python workers, so it is pickled; as many values come
            back as it is given.
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
    """A column on its way through a converter, as SQL.

    Args:
        made: SQL over the column that is given, computed once, that ``sql`` and the faults
            refer to by the name that the converter was given; None when there is no need.
        faults: Asked in turn; the first that holds is the record's.
        call: Made after ``made``; ``sql`` and the faults may refer to its result. Not for
            what an ExpressionDecoder gives.
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
        values: An array of the type that ``to_arrow_type(schema)`` gives.
        rows: The number of each value's row, increasing; None for all rows.
    """

    schema: Schema
    values: pa.Array
    rows: Sequence[int] | None = None


@dataclass(frozen=True)
class Decoded:
    """The values of one Arrow array of bytes.

    A row that is in no group and has no fault is null.

    Args:
        groups: Values by schema; no row is in two groups.
        faults: For a row's number the class of the error and its message.
    """

    groups: Sequence[Group] = ()
    faults: Mapping[int, tuple[str, str]] = field(default_factory=dict)


class ExpressionDecoder(ABC):
    """Decodes by an SQL expression."""

    def tokens(self, raw: str) -> str | None:
        """Return SQL for what identifies a value's schema, such as its id in a registry.

        ``raw`` is a column of type BINARY. None, the default, when all values have one
        schema, which is known; else the runtime collects the different tokens of each
        batch, in a job that reads nothing but this, before it calls ``decode``.
        """
        return None

    @abstractmethod
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        """Return the values in ``raw``. Called once a batch, on the driver.

        ``made`` is the name of ``Converted.made``, if it is used. The tokens are those that the
        batch has, and perhaps one that batches before it had; none without ``tokens``.
        """


class ArrowDecoder(ABC):
    """Decodes Arrow arrays, on executors: it must pickle, and should keep little."""

    remembers: bool = False
    """Whether the schema is inferred from the values: it is then stored, merged with what
    is stored already, and given to ``start``."""

    def tokens(self, raw: str) -> str | None:
        """Return SQL for what identifies a value's schema; see ``ExpressionDecoder.tokens``."""
        return None

    def start(self, known: Schema | None) -> None:  # noqa: B027 - optional
        """Take the schema that is stored. Called on the driver, once a batch."""

    def prepare(self, tokens: Sequence[Any]) -> None:  # noqa: B027 - optional
        """Take the tokens of the batch. Called after ``start``, if it has ``tokens``.

        As for ``ExpressionDecoder``, one may be of a batch before.
        What executors need goes into the object: it asks a registry here, and not there.
        """

    @abstractmethod
    def decode(self, raw: pa.Array) -> Decoded:
        """Decode an array of type binary. Called for each batch of a partition in turn.

        The same object decodes all of a partition, so it may learn from batch to batch.
        """

    def merged(self, known: Schema, new: Schema) -> Schema:
        """Return the schema that values of both fit into, on the driver.

        Raises ConfigError when there is none: the values of ``new`` are then faults.
        """
        from headrace.sdk.schema_evolution import evolve  # noqa: PLC0415 - spares executors

        return evolve(known, new)

    def fitted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        """Give values the type that the merged schema has, as far as a cast cannot.

        Called on executors for values of another type; what it returns is cast.
        """
        return values


class Converter(Configured, ABC):
    """Turns a part of a record into bytes and back.

    The runtime makes one for each part and topic, with the keys that follow
    ``key.converter.``, ``value.converter.`` or ``header.converter.``.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    parts: ClassVar[frozenset[RecordPart]] = frozenset({RecordPart.KEY, RecordPart.VALUE})
    """What it can convert."""

    def __init__(self, config: Config, context: ConverterContext) -> None:
        self.config = config
        self.settings = self.settings_class().from_config(config)
        self.context = context

    @abstractmethod
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        """Return the bytes of a column, with a schema of BYTES. Called once a batch.

        The column has values of ``schema``; ``made`` is the name of ``Converted.made``, if it
        is used. Raises ConfigError: values of this schema can never be converted.
        """

    @abstractmethod
    def decoder(self) -> ExpressionDecoder | ArrowDecoder:
        """Return what decodes. Called once a batch, on the driver."""

    def close(self) -> None:
        """Let go of connections. Called when the task stops, and before it starts again."""

    def refused(self, schema: Schema, takes: str) -> ConfigError:
        """Return the error for a schema that the converter cannot encode."""
        kind = schema.name or schema.type.value
        return ConfigError(
            problem=f"{type(self).__name__} takes {takes}, not {kind}.",
            field=f"{self.context.part}.converter",
            fix="Choose another converter, or cast the part with a transform.",
        )


class HeaderConverter(ABC):
    """Turns the values of headers into bytes and back; a Converter may be one as well.

    Headers are an ``array<struct<key:string,value:string,type:string>>``: the value is
    text, ``type`` the name of the type that it is the text of. What has become bytes has
    no type any more. In what these methods return, the schema means nothing.
    """

    @abstractmethod
    def encode_headers(self, headers: str, made: str) -> Converted:
        """Return the headers with encoded values; see ``Converter.encode``."""

    @abstractmethod
    def decode_headers(self, headers: str, made: str) -> Converted:
        """Return the headers with decoded values, and their types."""


HEADERS = Schema.array(
    Schema.struct(
        {name: Schema.string(optional=True) for name in ("key", "value", "type")},
        optional=True,
    ),
    optional=True,
)
"""The schema of headers."""


def is_raw(schema: Schema) -> bool:
    """Return whether a part holds what a converter reads: bytes, or their text."""
    return schema.type in {Type.BYTES, Type.STRING} and not schema.is_logical
