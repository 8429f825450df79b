"""Converters of strings, bytes, single numbers and headers, compatible with Kafka Connect's."""

from __future__ import annotations

import codecs
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import Converter, Schema, Type
from headrace.sdk.config import Importance, Range, Settings, ValidString, setting
from headrace.sdk.connectjson import to_string
from headrace.sdk.converter import (
    CONVERTER_TYPE,
    HEADERS,
    ArrowCall,
    ArrowDecoder,
    Converted,
    Decoded,
    ExpressionDecoder,
    Fault,
    Group,
    HeaderConverter,
    RecordPart,
)
from headrace.sdk.sqltext import literal
from headrace_plugins.kafka_compat.value_parsing import parse_string

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConverterSettings(Settings):
    """The settings of every converter."""

    converter_type: str = setting(
        "The part of the record that is converted. Set automatically from the setting that "
        "names the converter.",
        key=CONVERTER_TYPE,
        default=RecordPart.VALUE.value,
        validator=ValidString(*(part.value for part in RecordPart)),
        importance=Importance.LOW,
    )


class DecimalSettings(Settings, group="Serialization"):
    """The settings of JSON converters."""

    decimal_format: str = setting(
        "The format in which Decimals are written: BASE64 or NUMERIC. Both can be read.",
        default="BASE64",
        validator=ValidString("BASE64", "NUMERIC", any_case=True),
        importance=Importance.LOW,
    )

    @property
    def decimals_as_numbers(self) -> bool:
        """Whether to write Decimals as numbers instead of base64."""
        return self.decimal_format.upper() == "NUMERIC"


def unused_cache(sake: str, importance: Importance = Importance.LOW) -> Any:
    """Declare a cache size setting that another system has and Headrace does not use."""
    return setting(
        f"Accepted for compatibility with {sake}; not used.",
        default=1000,
        validator=Range(at_least=0),
        importance=importance,
        group="Schemas",
    )


_BYTES = Schema.bytes(optional=True)


class _FixedLength(ExpressionDecoder):
    """Decodes values of a fixed length; reports other lengths as faults."""

    def __init__(self, converter: ScalarConverter) -> None:
        self._converter = converter

    @override
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        converter = self._converter
        length = f"octet_length({raw})"
        right = f"{length} = {converter.length}"
        problem = literal(f"Failed to deserialize {converter.title}: size of data received is ")
        message = f"concat({problem}, {length}, {literal(f', not {converter.length}')})"
        return Converted(
            f"IF({right}, {converter.from_bytes(raw)}, NULL)",
            Schema(converter.type, optional=True),
            faults=(Fault(f"NOT ({right})", message), *converter.faults(raw)),
        )


class ScalarConverter(Converter):
    """Converts values of one type with a fixed number of bytes."""

    title: ClassVar[str]
    """Kafka's name of the type."""
    type: ClassVar[Type]
    length: ClassVar[int]
    takes: ClassVar[frozenset[Type]] = frozenset()
    """Other types that can be encoded as this type without loss."""

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
        """Return SQL for the value, from bytes of the right length."""

    def faults(self, raw: str) -> tuple[Fault, ...]:
        """Return the possible faults of bytes of the right length."""
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
        # Extend the number with its first bit, the sign.
        digits = f"concat(IF(hex({raw}) >= '8', 'FFFFFFFFFFFFFFFF', ''), hex({raw}))"
        number = f"CAST(conv(right({digits}, 16), 16, -10) AS BIGINT)"
        return f"CAST({number} AS {_NAMES[self.type]})"


_NAMES = {Type.INT16: "SMALLINT", Type.INT32: "INT", Type.INT64: "BIGINT"}


class ShortConverter(_WholeConverter):
    """Converts 16-bit integers, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.ShortConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.ShortConverter",
    )
    title = "short"
    type = Type.INT16
    takes = frozenset({Type.INT8})
    length = 2


class IntegerConverter(_WholeConverter):
    """Converts 32-bit integers, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.IntegerConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.IntegerConverter",
    )
    title = "integer"
    type = Type.INT32
    takes = frozenset({Type.INT8, Type.INT16})
    length = 4


class LongConverter(_WholeConverter):
    """Converts 64-bit integers, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.LongConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.LongConverter",
    )
    title = "long"
    type = Type.INT64
    takes = frozenset({Type.INT8, Type.INT16, Type.INT32})
    length = 8


class _FloatingConverter(ScalarConverter):
    # Avro encodes floating point numbers as the same bytes in little-endian order.

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
    """Converts 32-bit floating point numbers, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.FloatConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.FloatConverter",
    )
    title = "float"
    type = Type.FLOAT32
    length = 4


class DoubleConverter(_FloatingConverter):
    """Converts 64-bit floating point numbers, big-endian."""

    aliases = (
        "org.apache.kafka.connect.converters.DoubleConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.DoubleConverter",
    )
    title = "double"
    type = Type.FLOAT64
    takes = frozenset({Type.FLOAT32})
    length = 8


# The characters of an encoding; Java writes a question mark for any other.
_RANGES = {"US-ASCII": "\\x00-\\x7F", "ISO-8859-1": "\\x00-\\xFF"}
_ENCODINGS = ("UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", *_RANGES)
_WORDLESS = {Type.BYTES, Type.ARRAY, Type.MAP, Type.STRUCT}


class StringSettings(ConverterSettings):
    """The settings of ``StringConverter``."""

    converter_encoding: str = setting(
        f"The encoding of the text: {', '.join(_ENCODINGS)}.",
        default="UTF-8",
        validator=ValidString(*_ENCODINGS),
        importance=Importance.HIGH,
    )


class StringConverter(Converter, HeaderConverter):
    """Converts values to their text, and bytes to strings.

    Bytes that are invalid in the encoding become replacement characters, as in Java.
    Structs, arrays and maps are errors: use a JSON converter for them.
    """

    aliases = (
        "org.apache.kafka.connect.storage.StringConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.StringConverter",
    )
    parts = frozenset(RecordPart)

    settings: StringSettings

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        if schema.type in _WORDLESS and not schema.is_logical:
            raise self.refused(schema, "strings, numbers, booleans, dates and times")
        text = f"CAST({column} AS STRING)"
        encoding = self.settings.converter_encoding
        if encoding in _RANGES:
            text = f"regexp_replace({text}, {literal(f'[^{_RANGES[encoding]}]')}, '?')"
        code = "CAST({} AS BINARY)" if encoding == "UTF-8" else f"encode({{}}, '{encoding}')"
        return Converted(code.format(text), Schema.bytes(optional=True))

    @override
    def decoder(self) -> ExpressionDecoder | ArrowDecoder:
        encoding = self.settings.converter_encoding
        return _Utf8Decoder() if encoding == "UTF-8" else _CodecDecoder(encoding)

    @override
    def encode_headers(self, headers: str, made: str) -> Converted:
        return _with_type(headers, "CAST(NULL AS STRING)")

    @override
    def decode_headers(self, headers: str, made: str) -> Converted:
        return _with_type(headers, "'string'")


def _with_type(headers: str, type_: str) -> Converted:
    header = f"named_struct('key', h.key, 'value', h.value, 'type', {type_})"
    return Converted(f"transform({headers}, h -> {header})", HEADERS)


class _Utf8Decoder(ExpressionDecoder):
    @override
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        text = f"make_valid_utf8(CAST({raw} AS STRING))"
        return Converted(text, Schema.string(optional=True))


@dataclass
class _CodecDecoder(ArrowDecoder):
    encoding: str

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        texts = [None if value is None else self._text(value) for value in raw.to_pylist()]
        return Decoded([Group(Schema.string(optional=True), pa.array(texts, pa.string()))])

    def _text(self, raw: bytes) -> str:
        if self.encoding not in _WIDE:
            return raw.decode(self.encoding, "replace")
        # Without a byte order mark, Java reads big-endian, Python the machine's byte order.
        encoding = self.encoding
        if encoding == "UTF-16":
            encoding = "UTF-16LE" if raw.startswith(codecs.BOM_UTF16_LE) else "UTF-16BE"
            marked = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            raw = raw[_UNIT:] if marked else raw
        # Java reads a byte order mark with swapped bytes (U+FFFE) as invalid.
        return raw.decode(encoding, _REPLACING).replace("\ufffe", "\ufffd")


_WIDE = ("UTF-16", "UTF-16BE", "UTF-16LE")
_UNIT = 2
_LOW_HALVES = range(0xDC00, 0xE000)
_REPLACING = "headrace.utf16"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace invalid bytes by U+FFFD, and skip as many bytes as Java does."""
    assert isinstance(error, UnicodeDecodeError)
    rest = error.object[error.start :]
    first = rest[:_UNIT][::-1] if error.encoding.endswith("le") else rest[:_UNIT]
    low = len(rest) >= _UNIT and int.from_bytes(first) in _LOW_HALVES
    return "\ufffd", error.start + min(len(rest), _UNIT if low else 2 * _UNIT)


codecs.register_error(_REPLACING, _replaced)


class ByteArrayConverter(Converter):
    """Passes bytes through unchanged."""

    aliases = (
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.ByteArrayConverter",
    )

    settings: ConverterSettings

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        if schema.type is not Type.BYTES or schema.is_logical:
            raise self.refused(schema, "bytes")
        return Converted(column, Schema.bytes(optional=True))

    @override
    def decoder(self) -> ExpressionDecoder:
        return _AsItIs()


class _AsItIs(ExpressionDecoder):
    @override
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        return Converted(raw, _BYTES)


_HARD = "?"  # the type of a text that needs the parser
_HEADER = "struct<key:string,value:string,type:string>"
_READ = "struct<value:string,type:string>"
_READ_TYPE = pa.struct([("value", pa.string()), ("type", pa.string())])

_BITS = (("int8", 7), ("int16", 15), ("int32", 31))
_DAY = "[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"  # one that any month has
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{3}Z"
_DATE, _TIME, _TIMESTAMP = rf"^{_DAY}\z", rf"^{_CLOCK}\z", rf"^{_DAY}T{_CLOCK}\z"
# Texts that do not begin as a number, array, map, literal or blank are strings.
_STRING = r"^(?!true|false|null)[^\x00-\x20\p{Nd}+\-\[{]"
_WHOLE = r"^[+-]?[0-9]{1,18}\z"
# Decimal fractions whose shortest representation as a float is the text itself.
_FRACTION = r"^[+-]?[0-9]{1,3}[.][0-9]{0,2}[1-9]\z"


class SimpleHeaderConverter(Converter, HeaderConverter):
    """Converts header values to text, and parses texts to typed values.

    A number gets the narrowest type that it fits. Dates and times in ISO 8601 format, arrays
    and maps are parsed as such. Everything else is a string. A header that already has a type
    keeps it.
    """

    aliases = ("org.apache.kafka.connect.storage.SimpleHeaderConverter",)
    parts = frozenset({RecordPart.HEADER})

    settings: ConverterSettings

    @override
    def encode_headers(self, headers: str, made: str) -> Converted:
        # A header's value is already the text of `Values.convertToString`.
        return _with_type(headers, "CAST(NULL AS STRING)")

    @override
    def decode_headers(self, headers: str, made: str) -> Converted:
        called = ArrowCall.called(made)
        hard = f"h.type = '{_HARD}'"
        # Spark transfers null arrays a hundred times slower than arrays of nulls.
        texts = f"coalesce(transform({made}, h -> IF({hard}, h.value, NULL)), array())"
        read = "named_struct('key', h.key, 'value', r.value, 'type', r.type)"
        return Converted(
            f"zip_with({made}, {called}, (h, r) -> IF({hard}, {read}, h))",
            HEADERS,
            made=f"transform({headers}, h -> {_by_expression('h')})",
            call=ArrowCall(texts, read_texts, f"array<{_READ}>"),
        )

    @override
    def encode(self, column: str, made: str, schema: Schema) -> NoReturn:
        raise self.refused(schema, "headers")

    @override
    def decoder(self) -> NoReturn:
        raise self.refused(Schema.bytes(), "headers")


def _by_expression(header: str) -> str:
    """Return SQL for a header; its type is `?` if an expression cannot determine it."""
    text = f"{header}.value"
    number = f"try_cast({text} AS BIGINT)"
    widths = " ".join(
        f"WHEN {number} BETWEEN {-(1 << bits)} AND {(1 << bits) - 1} THEN '{name}'"
        for name, bits in _BITS
    )
    fraction = f"CAST(try_cast({text} AS FLOAT) AS STRING)"
    cases = (
        (f"{text} IS NULL OR {header}.type IS NOT NULL", text, f"{header}.type"),
        (f"{text} = '' OR {text} RLIKE {literal(_STRING)}", text, "'string'"),
        (f"{text} IN ('true', 'false')", text, "'boolean'"),
        (
            f"{text} RLIKE {literal(_WHOLE)}",
            f"CAST({number} AS STRING)",
            f"CASE {widths} ELSE 'int64' END",
        ),
        (f"{text} RLIKE {literal(_FRACTION)}", fraction, "'float32'"),
        (f"{text} RLIKE {literal(_DATE)}", text, "'date'"),
        (f"{text} RLIKE {literal(_TIMESTAMP)}", text, "'timestamp'"),
        (f"{text} RLIKE {literal(_TIME)}", text, "'time'"),
        (f"{text} = 'null'", "CAST(NULL AS STRING)", "CAST(NULL AS STRING)"),
    )
    whens = " ".join(
        f"WHEN {condition} THEN named_struct('key', {header}.key, 'value', {value}, "
        f"'type', {kind})"
        for condition, value, kind in cases
    )
    unknown = f"named_struct('key', {header}.key, 'value', {text}, 'type', '{_HARD}')"
    return f"CAST(CASE {whens} ELSE {unknown} END AS {_HEADER})"


def read_texts(texts: pa.Array) -> pa.Array:
    """Parse lists of texts; nulls in a list stay null. No list may be null."""
    all_ = texts.flatten().dictionary_encode()
    different = [_read(text) for text in all_.dictionary.to_pylist()]
    read = pa.array(different, _READ_TYPE).take(all_.indices)
    ends = pc.cumulative_sum(pc.list_value_length(texts))
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], ends.type), ends]), read)


def _read(text: str) -> dict[str, str | None]:
    try:
        parsed = parse_string(text)
    except RecursionError:
        # If its parser fails, Kafka Connect returns the bytes; this is their text.
        return {"value": to_string(text.encode()), "type": "bytes"}
    return {"value": parsed.text, "type": parsed.kind}
