"""How CSV and JSON are written: for Spark, and for Arrow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.csv as pa_csv

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from headrace.sdk.config import Config

__all__ = ["Dialect"]

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
    """The conventions of a text file.

    Args:
        header: Whether the first line of a CSV file names the columns.
        delimiter, quote, escape: Single characters. A quote inside quotes is preceded by
            ``escape``; equal to ``quote`` it is doubled, as RFC 4180 says.
        null_value: The text that stands for null, beside nothing at all.
        encoding: Of the file.
        timestamp_format, date_format: Spark's patterns; None for ISO 8601.
        time_zone: Of timestamps that name none.
        multiline: Whether a CSV value may hold line breaks, or a JSON file is one document.
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

    @classmethod
    def from_config(cls, config: Config, *, tabs: bool = False) -> Dialect:
        """Read the keys; ``tabs`` says that the file's name ends with .tsv.

        Raises:
            ConfigError: One of the characters is not a single one.
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
        )

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
        return self._spark_text()

    def _spark_text(self) -> dict[str, str]:
        formats = {"timestampFormat": self.timestamp_format, "dateFormat": self.date_format}
        return {
            "encoding": self.encoding,
            "timeZone": self.time_zone,
            "multiLine": str(self.multiline).lower(),
            **{name: pattern for name, pattern in formats.items() if pattern},
        }

    def arrow_parse(self, **more: Any) -> pa_csv.ParseOptions:
        """Return Arrow's options for dividing CSV into values."""
        doubled = self.escape == self.quote
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            double_quote=doubled,
            escape_char=False if doubled else self.escape,
            newlines_in_values=self.multiline,
            **more,
        )

    def arrow_convert(self, **more: Any) -> pa_csv.ConvertOptions:
        """Return Arrow's options for reading values."""
        return pa_csv.ConvertOptions(
            null_values=list({"", self.null_value}),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=self.arrow_times(),
            **more,
        )

    def arrow_times(self) -> list[Any]:
        """Return the patterns of times as Arrow takes them; ISO 8601 is always among them."""
        given = (_strptime(p) for p in (self.timestamp_format, self.date_format) if p)
        return [pattern for pattern in given if pattern] + [pa_csv.ISO8601]


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
