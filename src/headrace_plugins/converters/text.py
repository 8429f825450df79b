"""Converters of texts, and of bytes that stay as they are."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from headrace.sdk import Converter, Schema, Type
from headrace.sdk.config import Importance, ValidString, setting
from headrace.sdk.converter import (
    HEADERS,
    ArrowDecoder,
    Converted,
    Decoded,
    ExpressionDecoder,
    Group,
    HeaderConverter,
    RecordPart,
)
from headrace.sdk.sqltext import literal
from headrace_plugins.converters.keys import ConverterSettings

if TYPE_CHECKING:
    from collections.abc import Sequence


# The characters that an encoding has; Java writes a question mark for any other.
_RANGES = {"US-ASCII": "\\x00-\\x7F", "ISO-8859-1": "\\x00-\\xFF"}
_ENCODINGS = ("UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", *_RANGES)
_WORDLESS = {Type.BYTES, Type.ARRAY, Type.MAP, Type.STRUCT}


class StringSettings(ConverterSettings):
    """The encoding of texts."""

    converter_encoding: str = setting(
        f"The encoding of the text: {', '.join(_ENCODINGS)}.",
        default="UTF-8",
        validator=ValidString(*_ENCODINGS),
        importance=Importance.HIGH,
    )


class StringConverter(Converter, HeaderConverter):
    """Converts a value to its text, and bytes to a text.

    Bytes that are no text in the encoding become replacement characters, as in Java.
    Structs, arrays and maps are refused: JSON says what they hold.
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
            raise self.refused(schema, "texts, numbers, booleans, dates and times")
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
        # Without a mark the order is big-endian in Java, and the machine's own in Python.
        encoding = self.encoding
        if encoding == "UTF-16":
            encoding = "UTF-16LE" if raw.startswith(codecs.BOM_UTF16_LE) else "UTF-16BE"
            marked = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            raw = raw[_UNIT:] if marked else raw
        # A mark that is turned round is no character to Java.
        return raw.decode(encoding, _REPLACING).replace("\ufffe", "\ufffd")


_WIDE = ("UTF-16", "UTF-16BE", "UTF-16LE")
_UNIT = 2
_LOW_HALVES = range(0xDC00, 0xE000)
_REPLACING = "headrace.utf16"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Skip as many bytes for a replacement character as Java does."""
    assert isinstance(error, UnicodeDecodeError)
    rest = error.object[error.start :]
    first = rest[:_UNIT][::-1] if error.encoding.endswith("le") else rest[:_UNIT]
    low = len(rest) >= _UNIT and int.from_bytes(first) in _LOW_HALVES
    return "\ufffd", error.start + min(len(rest), _UNIT if low else 2 * _UNIT)


codecs.register_error(_REPLACING, _replaced)


class ByteArrayConverter(Converter):
    """Leaves bytes as they are."""

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
        return Converted(raw, Schema.bytes(optional=True))
