"""A source's configuration, understood as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, Schema
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file.dialect import Dialect
from headrace_plugins.connectors.file.formats import Format, format_of
from headrace_plugins.connectors.file.keys import configured_path
from headrace_plugins.connectors.file.listing import Listing, Share

if TYPE_CHECKING:
    from headrace.sdk.config import Config

__all__ = [
    "KAFKA_SOURCES",
    "OTHER_SINKS",
    "OTHER_SOURCES",
    "SHARE_KEY",
    "SourceSettings",
    "location_of",
]

KAFKA_SOURCES = (
    "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "FileStreamSourceConnector",
    "FileStreamSource",
)
OTHER_SOURCES = (*KAFKA_SOURCES, "org.apache.rocketmq.connect.file.FileSourceConnector")
OTHER_SINKS = (
    "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "FileStreamSinkConnector",
    "FileStreamSink",
    "org.apache.rocketmq.connect.file.FileSinkConnector",
)
SHARE_KEY = "task.share"
"""In a task's configuration: which of the files are its own."""

_READ_BYTES = 8 * 1024 * 1024
_LOOKED_AT_FILES = 100


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """What a source and its tasks are told.

    Args:
        path: As configured; it names the source in positions and schemas.
        listing: Where the files are.
        grows: Whether files are followed, instead of read as wholes.
        format: Of all files.
        dialect: Of text files.
        schema: The declared schema; None to infer it; a Variant where each record is one.
        sample_rows: How many lines the inference looks at.
        variants: Whether a field whose values share no shape becomes a VARIANT.
        topic: The topic to write to; None for the runtime's choice.
        max_files: The most files of a batch.
        settle: For how long a file must not have changed.
        rotate_wait: For how long a rotated file must not have changed.
        max_lines: The most lines of a poll.
        read_bytes: How much a poll reads, about.
        share: Which of the files belong to the task.
    """

    path: str
    listing: Listing
    grows: bool
    format: Format
    dialect: Dialect
    schema: Schema | None
    sample_rows: int
    variants: bool
    topic: str | None
    max_files: int
    settle: timedelta
    rotate_wait: timedelta
    max_lines: int | None
    read_bytes: int
    share: Share

    @classmethod
    def from_config(cls, config: Config) -> SourceSettings:
        """Understand the configuration of a connector or of one of its tasks.

        Raises:
            ConfigError: The format is not clear, a schema or a character is not valid.
        """
        path = configured_path(config)
        listing = Listing(location_of(config), recursive=config.get_bool("recursive"))
        alias = config.originals.get("connector.class", "") in OTHER_SOURCES
        grows = follows(config)
        format_ = _format(config, listing, grows=grows, alias=alias)
        ddl = config.get_str("schema").strip()
        whole = ddl.upper() == "VARIANT"
        if whole and format_ is not Format.JSON:
            raise ConfigError(
                problem=f"A record of {format_.value} is no one value of any kind.",
                fix="Set format to json, or name columns, as in payload VARIANT.",
                field="schema",
            )
        return cls(
            path=path,
            listing=listing,
            grows=grows,
            format=format_,
            dialect=Dialect.from_config(config, tabs=".tsv" in Path(path).suffixes),
            schema=Schema.variant(optional=True) if whole else _schema(ddl),
            sample_rows=config.get_int("infer.rows"),
            variants=config.get_str("infer.conflicts") == "variant",
            topic=config.find_str("topic"),
            max_files=config.get_int("max.files"),
            settle=timedelta(milliseconds=config.get_int("settle.ms")),
            rotate_wait=timedelta(milliseconds=config.get_int("rotate.wait.ms")),
            max_lines=config.find_int("batch.size"),
            read_bytes=config.get("batch.max.bytes") or _READ_BYTES,
            share=Share.from_text(config.originals.get(SHARE_KEY, "0/1")),
        )


def follows(config: Config) -> bool:
    """Return whether files are followed as they grow, instead of read as wholes."""
    alias = config.originals.get("connector.class", "") in OTHER_SOURCES
    return (config.find_str("mode") or ("grow" if alias else "set")) == "grow"


def _schema(ddl: str) -> Schema | None:
    return None if ddl.lower() == "infer" else parse_ddl(ddl, field="schema")


def location_of(config: Config) -> Location:
    """Return the place of the configured path.

    Raises:
        ConfigError: It is in no file system that is known.
    """
    return Location.of(configured_path(config))


def _format(config: Config, listing: Listing, *, grows: bool, alias: bool) -> Format:
    given = config.find_str("format")
    if given is not None:
        return Format(given)
    if alias:
        return Format.TEXT
    by_name = format_of(listing.path)
    if by_name is None and not (grows and listing.is_file):
        some = islice(listing.paths(), _LOOKED_AT_FILES)
        by_name = next((format_ for format_ in map(format_of, some) if format_), None)
    if by_name is None and grows:
        return Format.TEXT
    if by_name is None:
        raise ConfigError(
            problem=f"The names at {listing.path} do not tell the format.",
            fix=f"Set format to one of: {', '.join(f.value for f in Format)}.",
            field="format",
        )
    return by_name
