"""Converters of single values: booleans, whole numbers and floating point numbers.

The bytes are those of Kafka's own serializers: big-endian, of a fixed length.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from headrace.sdk import Converter, Schema, Type
from headrace.sdk.converter import Converted, ExpressionDecoder, Fault
from headrace.sdk.sqltext import literal
from headrace_plugins.converters.keys import ConverterSettings

if TYPE_CHECKING:
    from collections.abc import Sequence


_BYTES = Schema.bytes(optional=True)


class _FixedLength(ExpressionDecoder):
    """Decodes values of a fixed length; another length is a fault."""

    def __init__(self, converter: ScalarConverter) -> None:
        self._converter = converter

    @override
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        converter = self._converter
        length = f"octet_length({raw})"
        right = f"{length} = {converter.length}"
        title = f"Failed to deserialize {converter.title}: "
        message = (
            f"concat({literal(f'{title}size of data received is ')}, {length}, "
            f"{literal(f', not {converter.length}')})"
        )
        return Converted(
            f"IF({right}, {converter.from_bytes(raw)}, NULL)",
            Schema(converter.type, optional=True),
            faults=(Fault(f"NOT ({right})", message), *converter.faults(raw)),
        )


class ScalarConverter(Converter):
    """Converts values of one type, of a fixed number of bytes."""

    title: ClassVar[str]
    """Kafka's word for the type."""
    type: ClassVar[Type]
    length: ClassVar[int]
    takes: ClassVar[frozenset[Type]] = frozenset()
    """Other types that are encoded as this one, without loss."""

    settings: ConverterSettings

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        if schema.is_logical or schema.type not in {self.type, *self.takes}:
            raise self.refused(schema, self.title)
        return Converted(self.to_bytes(column), _BYTES)

    @override
    def decoder(self) -> ExpressionDecoder:
        return _FixedLength(self)

    @abstractmethod
    def to_bytes(self, column: str) -> str:
        """Return SQL for the bytes of a value."""

    @abstractmethod
    def from_bytes(self, raw: str) -> str:
        """Return SQL for the value of bytes of the right length."""

    def faults(self, raw: str) -> tuple[Fault, ...]:
        """Return what may be wrong with bytes of the right length."""
        return ()


class BooleanConverter(ScalarConverter):
    """Converts booleans: one byte, 0 or 1."""

    aliases = ("org.apache.kafka.connect.converters.BooleanConverter",)
    title = "boolean"
    type = Type.BOOLEAN
    length = 1

    @override
    def to_bytes(self, column: str) -> str:
        return f"IF({column}, X'01', IF({column} IS NULL, NULL, X'00'))"

    @override
    def from_bytes(self, raw: str) -> str:
        return f"CASE {raw} WHEN X'01' THEN true WHEN X'00' THEN false END"

    @override
    def faults(self, raw: str) -> tuple[Fault, ...]:
        title = literal("Failed to deserialize boolean: unexpected byte received: ")
        return (Fault(f"{raw} NOT IN (X'00', X'01')", f"concat({title}, hex({raw}))"),)


class _WholeConverter(ScalarConverter):
    @override
    def to_bytes(self, column: str) -> str:
        digits = f"lpad(hex(CAST({column} AS BIGINT)), 16, '0')"
        return f"substring(unhex({digits}), {9 - self.length}, {self.length})"

    @override
    def from_bytes(self, raw: str) -> str:
        # The sign is that of the first bit: fill up with it.
        digits = f"concat(IF(hex({raw}) >= '8', 'FFFFFFFFFFFFFFFF', ''), hex({raw}))"
        number = f"CAST(conv(right({digits}, 16), 16, -10) AS BIGINT)"
        return f"CAST({number} AS {_NAMES[self.type]})"


_NAMES = {Type.INT16: "SMALLINT", Type.INT32: "INT", Type.INT64: "BIGINT"}


class ShortConverter(_WholeConverter):
    """Converts whole numbers of 16 bits, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.ShortConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.ShortConverter",
    )
    title = "short"
    type = Type.INT16
    takes = frozenset({Type.INT8})
    length = 2


class IntegerConverter(_WholeConverter):
    """Converts whole numbers of 32 bits, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.IntegerConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.IntegerConverter",
    )
    title = "integer"
    type = Type.INT32
    takes = frozenset({Type.INT8, Type.INT16})
    length = 4


class LongConverter(_WholeConverter):
    """Converts whole numbers of 64 bits, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.LongConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.LongConverter",
    )
    title = "long"
    type = Type.INT64
    takes = frozenset({Type.INT8, Type.INT16, Type.INT32})
    length = 8


class _FloatingConverter(ScalarConverter):
    # Avro's floating point numbers are these bytes, the other way round.

    def _reversed(self, raw: str) -> str:
        places = range(self.length, 0, -1)
        return f"concat({', '.join(f'substring({raw}, {place}, 1)' for place in places)})"

    @override
    def to_bytes(self, column: str) -> str:
        value = f"CAST({column} AS {self.title.upper()})"
        little = f"to_avro({value}, '\"{self.title}\"')"
        return f"IF({column} IS NULL, NULL, {self._reversed(little)})"

    @override
    def from_bytes(self, raw: str) -> str:
        return f"from_avro({self._reversed(raw)}, '\"{self.title}\"')"


class FloatConverter(_FloatingConverter):
    """Converts floating point numbers of 32 bits, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.FloatConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.FloatConverter",
    )
    title = "float"
    type = Type.FLOAT32
    length = 4


class DoubleConverter(_FloatingConverter):
    """Converts floating point numbers of 64 bits, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.DoubleConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.DoubleConverter",
    )
    title = "double"
    type = Type.FLOAT64
    takes = frozenset({Type.FLOAT32})
    length = 8
