"""Headers as Kafka Connect's default converter reads and writes them: as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import Converter, Schema
from headrace.sdk.connectjson import to_string
from headrace.sdk.converter import HEADERS, ArrowCall, Converted, HeaderConverter, RecordPart
from headrace.sdk.sqltext import literal
from headrace_plugins.converters.keys import ConverterSettings
from headrace_plugins.kafka.value_parsing import parse_string

if TYPE_CHECKING:
    pass

_HARD = "?"  # the type of a text that only the parser can tell
_HEADER = "struct<key:string,value:string,type:string>"
_READ = "struct<value:string,type:string>"
_READ_TYPE = pa.struct([("value", pa.string()), ("type", pa.string())])

_BITS = (("int8", 7), ("int16", 15), ("int32", 31))
_DAY = "[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"  # one that any month has
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{3}Z"
_DATE, _TIME, _TIMESTAMP = rf"^{_DAY}\z", rf"^{_CLOCK}\z", rf"^{_DAY}T{_CLOCK}\z"
# What no number, list, map, literal or blank begins with stands for itself.
_STRING = r"^(?!true|false|null)[^\x00-\x20\p{Nd}+\-\[{]"
_WHOLE = r"^[+-]?[0-9]{1,18}\z"
# Numbers whose fewest digits as a float are those that they are written with.
_FRACTION = r"^[+-]?[0-9]{1,3}[.][0-9]{0,2}[1-9]\z"


class SimpleHeaderConverter(Converter, HeaderConverter):
    """Converts the values of headers to texts, and reads what a text stands for.

    A number has the narrowest type that holds it, dates and times in ISO form and lists and
    maps are read as such, anything else is a text. A header that has a type already keeps it.
    """

    aliases = ("org.apache.kafka.connect.storage.SimpleHeaderConverter",)
    parts = frozenset({RecordPart.HEADER})

    settings: ConverterSettings

    @override
    def encode_headers(self, headers: str, made: str) -> Converted:
        # A header's value is the text of `Values.convertToString` as it is.
        header = "named_struct('key', h.key, 'value', h.value, 'type', CAST(NULL AS STRING))"
        return Converted(f"transform({headers}, h -> {header})", HEADERS)

    @override
    def decode_headers(self, headers: str, made: str) -> Converted:
        called = ArrowCall.called(made)
        hard = f"h.type = '{_HARD}'"
        # Spark hands out null lists a hundred times slower than lists of nulls.
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
    """Return SQL for a header, of the type `?` where no expression can tell."""
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
    """Parse lists of texts; a null for a null in a list. No list is null."""
    given = texts.flatten().dictionary_encode()
    different = [_read(text) for text in given.dictionary.to_pylist()]
    read = pa.array(different, _READ_TYPE).take(given.indices)
    ends = pc.cumulative_sum(pc.list_value_length(texts))
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], ends.type), ends]), read)


def _read(text: str) -> dict[str, str | None]:
    try:
        parsed = parse_string(text)
    except RecursionError:
        # Kafka Connect hands on the bytes of what its parser breaks at; their text is this.
        return {"value": to_string(text.encode()), "type": "bytes"}
    return {"value": parsed.text, "type": parsed.kind}
