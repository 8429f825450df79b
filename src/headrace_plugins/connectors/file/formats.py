"""The formats of files: names, text dialects with their patterns of times, and compression."""

from __future__ import annotations

import codecs
import io
import re
import zlib
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from headrace.sdk import ConfigError
from headrace_plugins.connectors.file.record_ends import CsvQuoting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.sdk.config import Config


class Format(StrEnum):
    """The format of a file."""

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
PLUGIN = "file"
"""The connector's name, for dead letters."""
BOM = b"\xef\xbb\xbf"
"""The byte order mark at the beginning of some UTF-8 files."""


def format_of(name: str) -> Format | None:
    """Return the format by the extension of a name or a pattern, such as ``*.csv.gz``."""
    path = PurePath(name)
    if is_compressed(name):
        path = path.with_suffix("")
    return _BY_SUFFIX.get(path.suffix.lower())


_OF_ARROW = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
COMPRESSED = frozenset({*_OF_ARROW, ".lz4", ".snappy", ".deflate"})
_READ_BYTES = 1024 * 1024
_SEVEN_BITS = 0x7F
_SIZE_BYTES = 4
_BROKEN = "the file is not in Hadoop's compression format, or is truncated"
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_BUFFER = 256 * 1024
_LZ4_MOST = _LZ4_BUFFER - _LZ4_BUFFER // 255 - 16
"""The maximum bytes that Hadoop's codec compresses at once, with its default settings."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; empty at the end."""


def is_compressed(name: str) -> bool:
    """Return whether the extension is that of a compressed file."""
    return PurePath(name).suffix.lower() in COMPRESSED


def unpacked(file: pa.NativeFile, name: str) -> pa.NativeFile | Readable:
    """Return a stream of the decompressed content of a file; its extension is the codec.

    Spark and Hadoop write lz4 and snappy as blocks in Hadoop's format; lz4 files may also have
    the standard frame format. Reading raises OSError if the file has another format.
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
    """A stream over chunks of any size."""

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
    # The file may contain several concatenated streams.
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
        message = "the file is truncated"
        raise OSError(message)


def _hadoop_blocks(
    file: pa.NativeFile, block: Callable[[bytes, int], bytes]
) -> Iterator[bytes]:
    """Yield the content of blocks: a block is its size, then parts that each follow a size."""
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
    # The block begins with its size as a varint: seven bits per byte, no high bit in the last.
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
        # The codec fills with zeros if more bytes are requested than the block contains.
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


_FREE = range(0x1F, 0x0D, -1)
"""Control characters that are hardly used, to stand in for others."""
_BETWEEN, _BETWEEN_BYTE = "\ud800", b"\xff"
"""What no text has, and no UTF-8."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Exchanges signs that are not ASCII with control characters; a second time undoes it.

    Arrow's parser and the scanner of record ends support only signs of one byte. An exchange,
    unlike a replacement, can be undone in any text. Without pairs it returns what it gets.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, *signs: str) -> StandIns:
        """Return the stand-ins for those of ``signs`` that are not ASCII."""
        free = (chr(code) for code in _FREE if chr(code) not in signs)
        return cls(tuple((s, next(free)) for s in dict.fromkeys(signs) if not s.isascii()))

    def text(self, text: str) -> str:
        """Exchange the characters of a text."""
        for sign, other in self.pairs:  # much faster than str.translate
            text = text.replace(sign, _BETWEEN).replace(other, sign).replace(_BETWEEN, other)
        return text

    def block(self, block: bytes) -> bytes:
        """Exchange the characters of a text in UTF-8; other bytes stay unchanged."""
        if not self.pairs:
            return block
        text = block.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def table(self, table: pa.Table) -> pa.Table:
        """Exchange the characters in a table's columns of strings."""
        columns = table.columns
        for number, column in enumerate(columns if self.pairs else ()):
            if pa.types.is_string(column.type):
                values = column.cast(pa.binary())
                for sign, other in self.pairs:
                    for old, new in (
                        (sign, _BETWEEN_BYTE),
                        (other, sign),
                        (_BETWEEN_BYTE, other),
                    ):
                        values = pc.replace_substring(values, pattern=old, replacement=new)
                columns[number] = values.cast(pa.string())
        return pa.Table.from_arrays(columns, table.column_names)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The dialect of a text file, see ``TextSettings``.

    With ``multiline`` a JSON file is one document.
    """

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    """The character that escapes a quote; None if quotes are only doubled."""
    null_value: str = ""
    encoding: str = "UTF-8"
    timestamp_format: str | None = None
    date_format: str | None = None
    time_zone: str = "UTC"
    multiline: bool = False
    truncates: bool = False
    """Whether times with more than microsecond precision are truncated."""
    is_inferred: bool = False
    """Whether the types were inferred, so that values that they would bend are rejected."""

    @classmethod
    def from_config(cls, config: Config, *, tabs: bool = False) -> Dialect:
        """Parse the keys; ``tabs`` is set for files with the extension .tsv.

        Raises ConfigError if delimiter, quote or escape is not a single character, or if the
        delimiter is one of the others.
        """
        delimiter = _character(config, "delimiter") or ("\t" if tabs else ",")
        quote, escape = _character(config, "quote") or '"', _character(config, "escape")
        if delimiter in {quote, escape}:
            problem = f"{delimiter!r} is the quote or the escape character too."
            raise ConfigError(problem, fix="Set another character.", field="delimiter")
        return cls(
            header=config["header"],
            delimiter=delimiter,
            quote=quote,
            escape=None if escape == quote else escape,
            null_value=config.originals.get("null.value", ""),
            encoding=config.get_str("encoding"),
            timestamp_format=config.find_str("timestamp.format"),
            date_format=config.find_str("date.format"),
            time_zone=config.get_str("time.zone"),
            multiline=bool(config.get("multiline", False)),
            truncates=config.get("timestamp.nanos") == "truncate",
        )

    @property
    def stand_ins(self) -> StandIns:
        """Return what stands in for signs that are not ASCII, to parse CSV."""
        return StandIns.of(self.delimiter, self.quote, self.escape or "")

    @property
    def parsed(self) -> Dialect:
        """Return the dialect of CSV in which the stand-ins are used."""
        if not (exchange := self.stand_ins).pairs:
            return self
        return replace(
            self,
            delimiter=exchange.text(self.delimiter),
            quote=exchange.text(self.quote),
            escape=None if self.escape is None else exchange.text(self.escape),
            null_value=exchange.text(self.null_value),
        )

    @property
    def ends(self) -> CsvQuoting:
        """Return the object that finds the ends of CSV records, with stand-ins in them."""
        parsed = self.parsed
        escape = None if parsed.escape is None else ord(parsed.escape)
        return CsvQuoting(ord(parsed.delimiter), ord(parsed.quote), escape)

    @property
    def is_cuttable(self) -> bool:
        """Return whether bytes of line ends and quotes never occur in other characters."""
        if self.stand_ins.pairs:
            return False
        if self.is_utf8:
            return True
        signs = f"\n\r{self.delimiter}{self.quote}{self.escape or ''}"
        try:
            same = signs.encode(self.encoding) == signs.encode("ascii")
        except UnicodeError:
            return False
        name = codecs.lookup(self.encoding).name
        # A second byte of these encodings is 0x30-0x39 or 0x40 and higher.
        wide = name in _WIDE and not any("0" <= sign <= "9" or sign >= "@" for sign in signs)
        return same and (wide or name in _NARROW or bool(_CHARMAP.fullmatch(name)))

    @property
    def is_utf8(self) -> bool:
        """Return whether the encoding is UTF-8 or a subset of it."""
        return self.encoding.upper() in {"UTF-8", "UTF8", "US-ASCII"}

    def spark_csv(self) -> dict[str, str]:
        """Return Spark's options for writing CSV."""
        return {
            "header": str(self.header).lower(),
            "sep": self.delimiter,
            "quote": self.quote,
            "escape": self.escape or self.quote,
            "emptyValue": self.quote * 2,
            "nullValue": self.null_value,
            # By default Spark's writer strips blanks and control characters.
            "ignoreLeadingWhiteSpace": "false",
            "ignoreTrailingWhiteSpace": "false",
            **self._spark_text(),
        }

    def spark_json(self) -> dict[str, str]:
        """Return Spark's options for writing JSON."""
        return self._spark_text()

    def _spark_text(self) -> dict[str, str]:
        formats = {"timestampFormat": self.timestamp_format, "dateFormat": self.date_format}
        return {
            "encoding": self.encoding,
            "timeZone": self.time_zone,
            **{name: pattern for name, pattern in formats.items() if pattern},
        }

    def table(
        self,
        block: bytes,
        read: pa_csv.ReadOptions,
        *,
        on_ragged: Callable[[pa_csv.InvalidRow], str] | None = None,
        **converting: Any,
    ) -> pa.Table:
        """Parse CSV in UTF-8, with stand-ins, by Arrow; ``converting`` are its options.

        Values, and the error if there is one, are without stand-ins. Raises ArrowInvalid.
        """
        if not block.endswith((b"\n", b"\r")):
            block += b"\n"  # else Arrow takes an empty last value for one in quotes after one
        parsed = self.parsed
        parse = pa_csv.ParseOptions(
            delimiter=parsed.delimiter,
            quote_char=parsed.quote,
            newlines_in_values=True,
            invalid_row_handler=on_ragged,
        )
        convert = pa_csv.ConvertOptions(
            null_values=list({"", parsed.null_value}),
            strings_can_be_null=True,
            **{"quoted_strings_can_be_null": False, **converting},
        )
        try:
            table = pa_csv.read_csv(io.BytesIO(block), read, parse, convert)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(self.stand_ins.text(str(error))) from None
        return self.stand_ins.table(table)

    def pattern_of(self, arrow: pa.DataType) -> TimePattern | None:
        """Return the pattern of a date or timestamp type; None for ISO 8601 and other types."""
        texts = (
            (pa.types.is_timestamp, self.timestamp_format),
            (pa.types.is_date, self.date_format),
        )
        text = next((text for test, text in texts if test(arrow)), None)
        return TimePattern.of(text) if text else None


def _character(config: Config, key: str) -> str | None:
    # The original text: parsing strips tabs and spaces.
    text = config.originals.get(key) or config.find_str(key)
    if text is None:
        return None
    text = _NAMED.get(text, text)
    if len(text) != 1 or text in "\r\n":
        raise ConfigError(
            problem=f"{text!r} is not a single character within a line.",
            fix="Set one character, or the word tab or space.",
            field=key,
        )
    return text


_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+|')")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_OFFSET = r"Z|[+-]\d\d:?(?:\d\d)?"
_GROUPS = {
    "yyyy": ("year", r"\d{4}"),
    "yy": ("year", r"\d\d"),
    "MMMM": ("month", "(?i:" + "|".join(_MONTHS) + ")"),
    "MMM": ("month", "(?i:" + "|".join(month[:3] for month in _MONTHS) + ")"),
    "a": ("half", "(?i:[ap]m)"),
} | {
    letter * count: (name, r"\d\d" if count > 1 else r"\d\d?")
    for letter, name in (
        *(("M", "month"), ("d", "day"), ("H", "hour"), ("h", "half_hour")),
        *(("m", "minute"), ("s", "second")),
    )
    for count in (1, 2)
}
_FRACTION_DIGITS = 9
_GROUPS |= {"S" * n: ("fraction", rf"\d{{1,{n}}}") for n in range(1, _FRACTION_DIGITS + 1)}
_GROUPS |= {letter * n: ("zone", _OFFSET) for letter in "XxZ" for n in (1, 2, 3)}
_DEFAULTS = {"year": "1970", "month": "01", "day": "01", "minute": "00", "second": "00"}
_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A datetime pattern.

    Arrow's own `strptime` parses February 30 as March 2, so texts are split into parts and
    joined again as ISO 8601, of which Arrow checks every part.

    Args:
        text: The pattern in Spark's syntax.
        regex: Matches the texts, with a named group for each part.
    """

    text: str
    regex: str

    @classmethod
    def of(cls, text: str) -> TimePattern | None:
        """Parse a Spark pattern; return None if it is invalid or not supported."""
        return _parsed(text)

    def read(self, texts: pa.Array | pa.ChunkedArray, *, truncates: bool = False) -> Any:
        """Return timestamps, in UTC if the pattern contains a zone.

        If ``truncates``, times are truncated to microseconds. Raises ArrowInvalid for a text
        that does not match the pattern.
        """
        parts = pc.extract_regex(texts, self.regex)
        unread = pc.and_(pc.is_null(parts), pc.is_valid(texts))
        if pc.any(unread).as_py():
            raise pa.ArrowInvalid(self.mismatch(pc.filter(texts, unread)[0].as_py()))
        names = list(re.compile(self.regex).groupindex)
        values = {name: pc.struct_field(parts, [name]) for name in names}
        date = [_year(values), _month(values), _two(values, "day")]
        time = [_hour(values), _two(values, "minute"), _two(values, "second")]
        iso = _joined([_joined(date, "-"), _joined(time, ":")], "T")
        if "fraction" in values:
            iso = _joined([iso, _micros(values["fraction"], truncates=truncates)], ".")
        if "zone" not in values:
            return pc.cast(iso, _NAIVE)
        return pc.cast(_joined([iso, values["zone"]], ""), _UTC)

    def mismatch(self, text: str) -> str:
        """Return the problem of a text that does not match the pattern."""
        return f"{text!r} does not match the pattern {self.text}"


_LONGEST = 200


@lru_cache(maxsize=64)
def _parsed(text: str) -> TimePattern | None:
    if not text.strip() or len(text) > _LONGEST or text.replace("''", "").count("'") % 2:
        return None
    regex: list[str] = []
    seen: set[str] = set()
    for found in _TOKEN.finditer(text):
        literal, letter, other = found.groups()
        if letter is None:
            # '' is an apostrophe, and text in brackets is optional.
            sign = re.escape((literal.replace("''", "'") or "'") if other is None else other)
            brackets = sign.replace(r"\[", "(?:").replace(r"\]", ")?")
            regex.append(sign if other is None else brackets)
            continue
        name, form = _GROUPS.get(found.group(0), (None, ""))
        if name is None or name in seen:
            return None
        seen.add(name)
        regex.append(f"(?P<{name}>{form})")
    if {"hour", "half_hour"} <= seen or ("half_hour" in seen) != ("half" in seen):
        return None
    try:
        return TimePattern(text, re.compile("^" + "".join(regex) + "$").pattern)
    except (re.error, RecursionError):
        return None


def _joined(parts: list[Any], sign: str) -> Any:
    return pc.binary_join_element_wise(*parts, sign)


def _filled(values: Any, default: str) -> Any:
    """Return the texts of a part, with a default where an optional part is missing."""
    return pc.if_else(pc.equal(values, ""), default, values)


def _two(values: dict[str, Any], name: str) -> Any:
    if name not in values:
        return pa.scalar(_DEFAULTS[name])
    return pc.utf8_lpad(_filled(values[name], _DEFAULTS[name]), 2, "0")


def _year(values: dict[str, Any]) -> Any:
    if "year" not in values:
        return pa.scalar(_DEFAULTS["year"])
    years = _filled(values["year"], _DEFAULTS["year"])
    # Two-digit years are in 2000-2099, as in Spark and unlike POSIX.
    short = pc.binary_join_element_wise("20", years, "")
    return pc.if_else(pc.equal(pc.utf8_length(years), 2), short, years)


def _month(values: dict[str, Any]) -> Any:
    if "month" not in values:
        return pa.scalar(_DEFAULTS["month"])
    numbers = pa.array([f"{number:02}" for number in range(1, 13)])
    names = pa.array([month[:3] for month in _MONTHS])
    texts = _filled(values["month"], _DEFAULTS["month"])
    found = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(texts), 0, 3), names)
    return pc.coalesce(pc.take(numbers, found), pc.utf8_lpad(texts, 2, "0"))


def _hour(values: dict[str, Any]) -> Any:
    if "half_hour" not in values:
        hours = values.get("hour", pa.scalar("00"))
        return pc.utf8_lpad(_filled(hours, "00"), 2, "0")
    hours = pc.cast(values["half_hour"], pa.int8())
    if pc.any(pc.or_(pc.greater(hours, 12), pc.less(hours, 1))).as_py():
        message = "A 12-hour clock's hour is not from 1 to 12"
        raise pa.ArrowInvalid(message)
    from_noon = pc.if_else(pc.equal(pc.utf8_lower(values["half"]), "pm"), 12, 0)
    hours = pc.add(pc.if_else(pc.equal(hours, 12), 0, hours), from_noon)
    return pc.utf8_lpad(pc.cast(hours, pa.string()), 2, "0")


def _micros(digits: Any, *, truncates: bool) -> Any:
    """Return the fraction of a second as six digits."""
    more = pc.utf8_slice_codeunits(digits, 6)
    if not truncates and pc.any(pc.match_substring_regex(more, "[1-9]")).as_py():
        message = "A time has more than microsecond precision"
        raise pa.ArrowInvalid(message)
    return pc.utf8_rpad(pc.utf8_slice_codeunits(digits, 0, 6), 6, "0")
