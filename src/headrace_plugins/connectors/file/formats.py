"""The formats of files, known by names, and their dialects as Spark and Arrow take them."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow.csv as pa_csv

from headrace.sdk import ConfigError
from headrace_plugins.connectors.file.record_ends import CsvQuoting, LineEnds, RecordEnds

if TYPE_CHECKING:
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
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"})


CODECS = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
"""The compressed files that Arrow reads, by the ends of their names."""
BOM = b"\xef\xbb\xbf"
"""What files in UTF-8 may begin with."""


def format_of(name: str) -> Format | None:
    """Return the format that a name or a pattern ends with, as in ``*.csv.gz``."""
    path = PurePath(name)
    if path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return _BY_SUFFIX.get(path.suffix.lower())


def is_compressed(name: str) -> bool:
    """Return whether the name says that the whole file is compressed."""
    return PurePath(name).suffix.lower() in _COMPRESSED


def codec_of(name: str) -> str | None:
    """Return how the whole file is compressed, if Arrow reads that."""
    return CODECS.get(PurePath(name).suffix.lower())


def is_read_by_arrow(name: str) -> bool:
    """Return whether Arrow reads a file of this name, as far as compression goes."""
    return codec_of(name) is not None or not is_compressed(name)


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
_STRPTIME = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
_PATTERN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The conventions of a text file, see ``TextSettings``.

    With ``multiline`` a CSV value may hold line breaks, and a JSON file is one document.
    """

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
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
            quote=_character(config, "quote") or '"',
            escape=_character(config, "escape") or '"',
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
        return CsvQuoting(ord(self.delimiter), ord(self.quote))

    def why_spark(self) -> str | None:
        """Return which key Spark alone can read by; None if Arrow reads the file."""
        if self.escape != self.quote:
            return "escape is another character than quote"
        if not (self.delimiter + self.quote).isascii():
            return "delimiter or quote is not ASCII"
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            return f"encoding is {self.encoding}"
        patterns = {"timestamp.format": self.timestamp_format, "date.format": self.date_format}
        for key, pattern in patterns.items():
            if pattern and _strptime(pattern) is None:
                return f"{key} is {pattern}"
        return None

    @property
    def is_cuttable(self) -> bool:
        """Return whether line ends and quotes are where their bytes are in an encoded text."""
        if self.is_utf8:
            return True
        signs = f"\n\r{self.delimiter}{self.quote}"
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
            "escape": self.escape,
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
        doubled = self.escape == self.quote
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            double_quote=doubled,
            escape_char=False if doubled else self.escape,
            newlines_in_values=breaks,
            **more,
        )

    def arrow_convert(self, **more: Any) -> pa_csv.ConvertOptions:
        """Return Arrow's options for reading values."""
        return pa_csv.ConvertOptions(
            null_values=list({"", self.null_value}),
            strings_can_be_null=True,
            **{"quoted_strings_can_be_null": False, **more},
            timestamp_parsers=self.arrow_times(),
        )

    def arrow_times(self) -> list[Any]:
        """Return the patterns of times as Arrow takes them; ISO 8601 is always among them."""
        both = self.strptime_timestamp, self.strptime_date
        return [pattern for pattern in both if pattern] + [pa_csv.ISO8601]

    @property
    def strptime_timestamp(self) -> str | None:
        """Return the pattern of timestamps as Arrow takes it; None for ISO 8601."""
        return _strptime(self.timestamp_format) if self.timestamp_format else None

    @property
    def strptime_date(self) -> str | None:
        """Return the pattern of dates as Arrow takes it; None for ISO 8601."""
        return _strptime(self.date_format) if self.date_format else None


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


def _strptime(pattern: str) -> str | None:
    """Translate a pattern of Spark's; None when Arrow has no counterpart for it."""
    parts = []
    for found in _PATTERN.finditer(pattern):
        text = found.group(0)
        if found.group(2) is None:
            parts.append(found.group(1) if text.startswith("'") else text)
        elif text in _STRPTIME:
            parts.append(_STRPTIME[text])
        else:
            return None
    return "".join(parts)
