"""The formats of files: their names, their dialects, and how they are compressed."""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv

from headrace.sdk import ConfigError
from headrace_plugins.connectors.file.record_ends import CsvQuoting, LineEnds, RecordEnds
from headrace_plugins.connectors.file.time_patterns import TimePattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.sdk.config import Config


class Format(StrEnum):
    """What is in a file."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


_BY_SUFFIX = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".avro": Format.AVRO,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
}
BOM = b"\xef\xbb\xbf"
"""What files in UTF-8 may begin with."""


def format_of(name: str) -> Format | None:
    """Return the format that a name or a pattern ends with, as in ``*.csv.gz``."""
    path = PurePath(name)
    if is_compressed(name):
        path = path.with_suffix("")
    return _BY_SUFFIX.get(path.suffix.lower())


_OF_ARROW = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
COMPRESSED = frozenset({*_OF_ARROW, ".lz4", ".snappy", ".deflate"})
_READ_BYTES = 1024 * 1024
_SEVEN_BITS = 0x7F
_SIZE_BYTES = 4
_BROKEN = "It is not as Hadoop compresses it, or ends too early"
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_BUFFER = 256 * 1024
_LZ4_MOST = _LZ4_BUFFER - _LZ4_BUFFER // 255 - 16
"""How much of a text Hadoop's codec compresses at once, with the settings that it has."""


class Readable(Protocol):
    """What gives bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


def is_compressed(name: str) -> bool:
    """Return whether the name says that the whole file is compressed."""
    return PurePath(name).suffix.lower() in COMPRESSED


def unpacked(file: pa.NativeFile, name: str) -> pa.NativeFile | Readable:
    """Return what reads the contents of a file of that name.

    What Spark and Hadoop write as lz4 and snappy are blocks of their own form; lz4 may have
    its own form too. Reading raises OSError if it is not so compressed.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in _OF_ARROW:
        return pa.CompressedInputStream(file, _OF_ARROW[suffix])
    if suffix == ".deflate":
        return _Unpacked(_inflated(file))
    if suffix == ".snappy":
        return _Unpacked(_hadoop_blocks(file, _snappy_block))
    if suffix == ".lz4":
        is_frame = bytes(file.read(len(_LZ4_FRAME))) == _LZ4_FRAME
        file.seek(0)
        if is_frame:
            return pa.CompressedInputStream(file, "lz4")
        return _Unpacked(_hadoop_blocks(file, _lz4_block))
    return file


class _Unpacked:
    """Reads from parts of any size."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        found, have = [self._rest], len(self._rest)
        while have < size and (part := next(self._parts, b"")):
            found.append(part)
            have += len(part)
        data = b"".join(found)
        self._rest = data[size:]
        return data[:size]


def _inflated(file: pa.NativeFile) -> Iterator[bytes]:
    # There may be several streams, one behind the other.
    stream, is_begun = zlib.decompressobj(), False
    try:
        while data := bytes(file.read(_READ_BYTES)):
            while data:
                if stream.eof:
                    stream = zlib.decompressobj()
                is_begun = True
                if part := stream.decompress(data):
                    yield part
                data = stream.unused_data
    except zlib.error as error:
        raise OSError(str(error)) from error
    if is_begun and not stream.eof:
        message = "It ends too early"
        raise OSError(message)


def _hadoop_blocks(
    file: pa.NativeFile, block: Callable[[bytes, int], bytes]
) -> Iterator[bytes]:
    """Yield what blocks hold: the size of each and then its parts, each after its own size."""
    while header := file.read(_SIZE_BYTES):
        left = int.from_bytes(header, "big")
        if len(header) < _SIZE_BYTES or (not left and file.read(1)):
            raise OSError(_BROKEN)
        while left > 0:
            size = int.from_bytes(file.read(_SIZE_BYTES), "big")
            data = bytes(file.read(size))
            part = block(data, left) if data and len(data) == size else b""
            if not part:
                raise OSError(_BROKEN)
            yield part
            left -= len(part)


def _snappy_block(data: bytes, most: int) -> bytes:
    # It begins with its size, seven bits a byte, the last of which has no high bit.
    size, shift = 0, 0
    for byte in data:
        size |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if byte <= _SEVEN_BITS:
            break
    if not 0 < size <= most:
        return b""
    return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))


def _lz4_block(data: bytes, most: int) -> bytes:
    codec, size = pa.Codec("lz4_raw"), min(most, _LZ4_MOST)
    part = bytes(codec.decompress(data, size, asbytes=True))
    try:
        # The codec fills with zeros what it is asked for more than there is.
        codec.decompress(data, size - 1)
    except OSError:
        return part
    return b""


_WIDE = frozenset(
    {
        "gb18030",
        "gbk",
        "gb2312",
        "big5",
        "big5hkscs",
        "cp950",
        "cp949",
        "euc_kr",
        "euc_jp",
        "shift_jis",
        "cp932",
    }
)
_NARROW = frozenset({"ascii", "latin-1", "iso8859-1", "koi8-r", "koi8-u"})
_CHARMAP = re.compile(r"cp125\d|cp437|cp85\d|cp86\d|iso8859-\d+|mac-.*")
_NAMED = {"\\t": "\t", "tab": "\t", "space": " ", "\\u0001": "\x01"}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The conventions of a text file, see ``TextSettings``.

    With ``multiline`` a CSV value may hold line breaks, and a JSON file is one document.
    """

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    """What may stand before a quote; None where that is doubled only."""
    null_value: str = ""
    encoding: str = "UTF-8"
    timestamp_format: str | None = None
    date_format: str | None = None
    time_zone: str = "UTC"
    multiline: bool = False
    truncates: bool = False
    """Whether times are cut that have more digits than microseconds."""

    @classmethod
    def from_config(cls, config: Config, *, tabs: bool = False) -> Dialect:
        """Read the keys; ``tabs`` says that the file's name ends with .tsv.

        Raises ConfigError for a character that is not a single one.
        """
        return cls(
            header=config.get_bool("header"),
            delimiter=_character(config, "delimiter") or ("\t" if tabs else ","),
            quote=(quote := _character(config, "quote") or '"'),
            escape=None if (escape := _character(config, "escape")) == quote else escape,
            null_value=config.originals.get("null.value", ""),
            encoding=config.get_str("encoding"),
            timestamp_format=config.find_str("timestamp.format"),
            date_format=config.find_str("date.format"),
            time_zone=config.get_str("time.zone"),
            multiline=bool(config.get("multiline", False)),
            truncates=config.get("timestamp.nanos") == "truncate",
        )

    @property
    def ends(self) -> RecordEnds:
        """Return where records of CSV end."""
        if self.why_spark() is not None and not self.multiline:
            return LineEnds()
        escape = None if self.escape is None else ord(self.escape)
        return CsvQuoting(ord(self.delimiter), ord(self.quote), escape)

    def why_spark(self) -> str | None:
        """Return which key Spark alone can read by; None if Arrow reads the file."""
        if not f"{self.delimiter}{self.quote}{self.escape or ''}".isascii():
            return "delimiter, quote or escape is not ASCII"
        return None

    @property
    def is_cuttable(self) -> bool:
        """Return whether line ends and quotes are where their bytes are in an encoded text."""
        if self.is_utf8:
            return True
        signs = f"\n\r{self.delimiter}{self.quote}{self.escape or ''}"
        try:
            same = signs.encode(self.encoding) == signs.encode("ascii")
        except UnicodeError:
            return False
        name = codecs.lookup(self.encoding).name
        # A second byte of these is 0x30 or higher, and no other sign of ours.
        wide = name in _WIDE and not any("0" <= sign <= "9" or sign >= "@" for sign in signs)
        return same and (wide or name in _NARROW or bool(_CHARMAP.fullmatch(name)))

    @property
    def is_utf8(self) -> bool:
        """Return whether texts are in UTF-8, or in a part of it."""
        return self.encoding.upper() in {"UTF-8", "UTF8", "US-ASCII"}

    def spark_csv(self) -> dict[str, str]:
        """Return Spark's options for reading or writing CSV."""
        return {
            "header": str(self.header).lower(),
            "sep": self.delimiter,
            "quote": self.quote,
            "escape": self.escape or self.quote,
            "nullValue": self.null_value,
            # When it writes, Spark takes blanks and control characters away by default.
            "ignoreLeadingWhiteSpace": "false",
            "ignoreTrailingWhiteSpace": "false",
            **self._spark_text(),
        }

    def spark_json(self) -> dict[str, str]:
        """Return Spark's options for reading or writing JSON."""
        # When it reads, Spark takes texts in single quotes by default.
        return {"allowSingleQuotes": "false", **self._spark_text()}

    def _spark_text(self) -> dict[str, str]:
        formats = {"timestampFormat": self.timestamp_format, "dateFormat": self.date_format}
        return {
            "encoding": self.encoding,
            "timeZone": self.time_zone,
            "multiLine": str(self.multiline).lower(),
            **{name: pattern for name, pattern in formats.items() if pattern},
        }

    def arrow_parse(self, *, breaks: bool, **more: Any) -> pa_csv.ParseOptions:
        """Return Arrow's options for dividing CSV into values, which may hold line breaks."""
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            newlines_in_values=breaks,
            **more,
        )

    def arrow_convert(self, **more: Any) -> pa_csv.ConvertOptions:
        """Return Arrow's options for reading values."""
        return pa_csv.ConvertOptions(
            null_values=list({"", self.null_value}),
            strings_can_be_null=True,
            **{"quoted_strings_can_be_null": False, **more},
        )

    def pattern_of(self, arrow: pa.DataType) -> TimePattern | None:
        """Return how values of a type are written; None for all but times, and for ISO 8601."""
        texts = (
            (pa.types.is_timestamp, self.timestamp_format),
            (pa.types.is_date, self.date_format),
        )
        text = next((text for test, text in texts if test(arrow)), None)
        return TimePattern.of(text) if text else None


def _character(config: Config, key: str) -> str | None:
    # The text as it was given: parsing takes tabs and spaces away.
    text = config.originals.get(key) or config.find_str(key)
    if text is None:
        return None
    text = _NAMED.get(text, text)
    if len(text) != 1:
        raise ConfigError(
            problem=f"{text!r} is not a single character.",
            fix="Give one character; tab and space may be written as words.",
            field=key,
        )
    return text
