"""The settings of the file connectors, and the parsed configuration of a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError, Schema, Type
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Range,
    Rule,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.location import Location
from headrace.sdk.schema import VARIANT
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import sql_type
from headrace_plugins.connectors.file.formats import Dialect, Format, format_of
from headrace_plugins.connectors.file.listing import Listing, Share
from headrace_plugins.window import (
    ColumnWindow,
    FilledWindowSettings,
    NameTime,
    WindowSettings,
    clock_at,
    zone_named,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.sdk.config import Config
    from headrace_plugins.connectors.file.listing import FoundFile


PATH_KEYS = ("path", "file", "filename")
"""The names of the path setting: Headrace's, Kafka Connect's and RocketMQ Connect's."""


def configured_path(config: Config) -> str:
    """Return the path, whichever of its names is set."""
    return next(path for key in PATH_KEYS if (path := config.find_str(key)))


def _one_path(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    named = [key for key in PATH_KEYS if str(props.get(key) or "").strip()]
    if len(named) == 1:
        return
    yield ConfigError(
        problem=f"{' and '.join(named)} are the same setting." if named else "No path is set.",
        fix=f"Set exactly one of {', '.join(PATH_KEYS)}.",
        field=named[-1] if named else "path",
    )


class PathAliases(Settings, group="File"):
    """The names of the path in Kafka Connect and RocketMQ Connect."""

    rules: ClassVar[tuple[Rule, ...]] = (_one_path,)

    file: str | None = setting(
        "Kafka Connect's name for path.", default=None, meaning=Meaning.PATH
    )
    filename: str | None = setting(
        "RocketMQ Connect's name for path.", default=None, meaning=Meaning.PATH
    )


class TextSettings(Settings, group="Text formats"):
    """The settings of text formats."""

    header: bool = setting(
        "Whether the first line of a CSV file names the columns.", default=True
    )
    delimiter: str | None = setting(
        "The character between CSV values: one character, or tab, or space. If null, a "
        "comma, or a tab for .tsv files.",
        default=None,
    )
    quote: str = setting("The quote character of CSV values.", default='"')
    escape: str | None = setting(
        "The character that escapes a quote inside a quoted CSV value, such as a backslash. "
        "Doubling the quote always works, and is the only way if null, as in RFC 4180.",
        default=None,
    )
    null_value: str = setting(
        "The CSV text for null, such as NA, in addition to an empty value.", default=""
    )
    encoding: str = setting("The encoding of text files.", default="UTF-8")
    timestamp_format: str | None = setting(
        "The format of timestamps, as a Spark datetime pattern; ISO 8601 if null.",
        default=None,
    )
    date_format: str | None = setting(
        "The format of dates, as a Spark datetime pattern; ISO 8601 if null.", default=None
    )
    time_zone: str = setting("The time zone of timestamps without one.", default="UTC")


def _valid_way(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Check that the keys that window.by and window.kind require are set."""
    needed = {"name": "window.name.format", "column": "window.column"}.get(
        str(props.get("window.by")), "window.by"
    )
    if needed != "window.by" and not props.get(needed):
        yield ConfigError(
            problem=f"window.by is {props['window.by']}, but {needed} is not set.",
            fix=f"Set {needed}.",
            field=needed,
        )
    if props.get("window.kind") == "value" and not props.get("window.column"):
        yield ConfigError(
            problem="window.kind is value, but window.column is not set.",
            fix="Set window.column.",
            field="window.column",
        )
    if text := props.get("window.name.format"):
        try:
            NameTime.of(str(text))
        except ConfigError as error:
            yield error


class FileSourceSettings(PathAliases, TextSettings, WindowSettings, group="Reading"):
    """What a file source reads."""

    rules = (*PathAliases.rules, *WindowSettings.rules, _valid_way)

    path: str | None = setting(
        "A file, a folder, or a glob such as /data/**/*.csv; as a path or a file:/// URL.",
        default=None,
        importance=Importance.HIGH,
        group="File",
        meaning=Meaning.PATH,
    )
    format: str | None = setting(
        "The file format; derived from the file extension if null.",
        default=None,
        validator=NullOr(ValidString(*(format_.value for format_ in Format))),
        importance=Importance.HIGH,
        group="File",
    )
    mode: str | None = setting(
        "set reads each file once, as a whole, when it appears, and logs a warning if the "
        "file changes later; grow follows files that lines are appended to. If null, set, or "
        "grow under Kafka Connect's and RocketMQ Connect's connector names.",
        default=None,
        validator=NullOr(ValidString("set", "grow")),
    )
    schema: str = setting(
        "The columns as Spark DDL, such as id BIGINT, name STRING. infer infers the columns "
        "from the files, stores them, and adds new columns of later files. VARIANT alone "
        "reads each JSON record as one value, for records without a common structure.",
        default="infer",
        importance=Importance.HIGH,
    )
    infer_rows: int = setting(
        "The number of lines of a text file that are sampled to infer the schema.",
        default=10_000,
        validator=Range(at_least=1),
    )
    infer_conflicts: str = setting(
        "The type of a JSON field whose values have incompatible types, such as a number "
        "and an object: variant preserves each value, text converts all values to strings. "
        "Mode grow always converts to strings.",
        default="variant",
        validator=ValidString("variant", "text"),
    )
    topic: str | None = setting(
        "The topic to write to; required under Kafka Connect's names.", default=None
    )
    recursive: bool = setting("Whether subfolders are searched too.", default=False)
    partition_columns: bool = setting(
        "Mode set: whether the names of folders below path in the form column=value, such as "
        "day=2026-01-31, are read as columns, as Hive and Spark write them.",
        default=True,
    )
    multiline: bool = setting(
        "Mode set: whether each JSON file is one document, which one Spark task reads. "
        "Quoted CSV values may contain line breaks without this setting.",
        default=False,
    )
    timestamp_nanos: str = setting(
        "How to read times with more than microsecond precision, which Spark does not "
        "support: reject makes them bad records, truncate removes the extra digits.",
        default="reject",
        validator=ValidString("reject", "truncate"),
    )
    max_files: int = setting(
        "Mode set: the maximum files per batch.", default=1000, validator=Range(at_least=1)
    )
    settle_ms: int = setting(
        "Mode set: how long a file must be unchanged before it is read, so that a file that "
        "is still being copied is not read. A run that ends waits this long.",
        default=2000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    rotate_wait_ms: int = setting(
        "Mode grow: how long a rotated file must be unchanged before the next file is read. "
        "Must be longer than programs take to switch to their new file.",
        default=10_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    batch_size: int | None = setting(
        "Mode grow: the maximum lines per poll; unlimited if null.",
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    window_by: str | None = setting(
        "Mode set: what is compared with window.from and window.to. modified compares the "
        "modification times of files; name compares times in paths, see window.name.format; "
        "column reads all files and keeps the rows whose window.column is in the window. If "
        "null, column if window.column is set, else name if window.name.format is set, else "
        "modified.",
        default=None,
        validator=NullOr(ValidString("modified", "name", "column")),
        group="Window",
    )
    window_name_format: str | None = setting(
        "The format of times in paths, with the fields %Y, %m, %d, %H, %M and %S, such as "
        "dt=%Y-%m-%d/hour=%H; the last match in a path counts, in time.zone. A file without "
        "a match is not read.",
        default=None,
        group="Window",
    )

    @property
    def way(self) -> str:
        """What is compared with the window: ``modified``, ``name`` or ``column``."""
        by_column = self.window_column is not None
        by_name = "name" if self.window_name_format else "modified"
        by = self.window_by or ("column" if by_column else by_name)
        return "column" if self.window_kind == "value" else by

    def declared_schema(self) -> Schema | None:
        """Return the declared schema; None to infer it, a Variant if each record is one.

        Raises ConfigError if the DDL is invalid.
        """
        ddl = self.schema.strip()
        if ddl.lower() == "infer":
            return None
        is_variant = ddl.upper() == "VARIANT"
        return Schema.variant(optional=True) if is_variant else parse_ddl(ddl, field="schema")

    def chosen(
        self, files: Iterable[FoundFile], unnamed: Callable[[str], None]
    ) -> list[FoundFile]:
        """Return the files that are in the window, by modification time or by path.

        ``unnamed`` is called with each path that contains no time.
        """
        window, way = self.window, self.way
        if window is None or way == "column":
            return list(files)
        bounds: Sequence[Any] = window.times
        if way == "modified":
            bounds = [None if at is None else _nanos(at) for at in bounds]
            return [file for file in files if _lies(file.mtime_ns, *bounds)]
        format_, zone = NameTime.of(str(self.window_name_format)), zone_named(self.time_zone)
        bounds = [None if at is None else clock_at(at, zone) for at in bounds]
        found = []
        for file in files:
            time = format_.time(file.path)
            if time is None:
                unnamed(file.path)
            elif _lies(time, *bounds):
                found.append(file)
        return found


def _nanos(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def _lies(at: Any, lower: Any, upper: Any) -> bool:
    return (lower is None or lower <= at) and (upper is None or at < upper)


class FileSinkSettings(PathAliases, TextSettings, FilledWindowSettings, group="Writing"):
    """What a file sink writes."""

    path: str | None = setting(
        "The target folder, as a path or a file:/// URL; ${topic} is replaced with the "
        "topic's name. Mode append: the target file.",
        default=None,
        importance=Importance.HIGH,
        group="File",
        meaning=Meaning.PATH,
    )
    format: str | None = setting(
        "The file format. If null, text in mode append, else derived from the path's "
        "extension, else parquet.",
        default=None,
        validator=NullOr(ValidString(*(format_.value for format_ in Format))),
        importance=Importance.HIGH,
        group="File",
    )
    mode: str | None = setting(
        "folder adds files to a folder with each batch; append appends lines to one file. If "
        "null, folder, or append under Kafka Connect's and RocketMQ Connect's connector names.",
        default=None,
        validator=NullOr(ValidString("folder", "append")),
    )
    partition_by: tuple[str, ...] = setting(
        "Mode folder: the fields whose values partition the files into subfolders "
        "field=value. Null and an empty string share a subfolder, as in all such folders.",
        default=(),
        importance=Importance.HIGH,
    )
    compression: str | None = setting(
        "Mode folder: the compression codec. If null, snappy for parquet and avro, and none "
        "for text formats.",
        default=None,
        validator=NullOr(
            ValidString("none", "gzip", "snappy", "zstd", "lz4", "bzip2", "deflate")
        ),
    )
    replace_window: bool = setting(
        "For offline jobs, mode folder: whether the first batch of a run replaces the files "
        "that earlier runs of the same window wrote, so that a window can be run again.",
        default=False,
        importance=Importance.HIGH,
    )
    replace_partitions: bool = setting(
        "For offline jobs, with partition.by: like replace.window, and a run also replaces "
        "all other files in each subfolder that it writes to, whichever program wrote them. "
        "A subfolder with files of another window of the job is an error.",
        default=False,
        importance=Importance.HIGH,
    )


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
"""The key in a task's configuration for its ``Share`` of the files."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READ_BYTES = 8 * 1024 * 1024
_LOOKED_AT_FILES = 100


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The configuration of a source, derived from its keys and the existing files."""

    keys: FileSourceSettings
    path: str
    """As configured; identifies the source in positions and stored schemas."""
    listing: Listing
    grows: bool
    """Whether the mode is grow, else set."""
    format: Format
    dialect: Dialect
    schema: Schema | None
    """The declared schema; None to infer it; a Variant if each record is one."""
    read_bytes: int
    """The approximate size of a poll."""
    share: Share
    windowed: bool
    """Whether a window limits the files or rows that are read."""

    @classmethod
    def from_config(cls, config: Config) -> SourceSettings:
        """Parse the configuration of a connector or of one of its tasks.

        Raises ConfigError if the format is unknown, or a schema or a character is invalid.
        """
        keys = FileSourceSettings.from_config(config)
        path = configured_path(config)
        listing = Listing(Location.of(path), recursive=keys.recursive)
        format_ = _format(config, listing)
        schema = keys.declared_schema()
        if schema is not None and schema.name == VARIANT and format_ is not Format.JSON:
            raise ConfigError(
                problem=f"A {format_.value} record cannot be one VARIANT.",
                fix="Set format to json, or declare columns, such as payload VARIANT.",
                field="schema",
            )
        dialect = Dialect.from_config(config, tabs=".tsv" in Path(path).suffixes)
        dialect = replace(dialect, is_inferred=schema is None)
        if format_ is not Format.CSV:
            dialect = replace(dialect, delimiter=",", quote='"', escape=None)
        elif schema is not None:
            _require_flat(schema)
        return cls(
            keys=keys,
            path=path,
            listing=listing,
            grows=follows(config),
            format=format_,
            dialect=dialect,
            schema=schema,
            read_bytes=config.get("batch.max.bytes") or _READ_BYTES,
            share=Share.from_text(config.originals.get(SHARE_KEY, "0/1")),
            windowed=keys.window is not None,
        )

    def column_window(self, schema: Schema) -> ColumnWindow | None:
        """Return the window for the rows of a schema; None to read all rows.

        Raises ConfigError if the schema lacks the window's column.
        """
        if self.keys.way != "column":
            return None
        return self.keys.column_window(schema, self.keys.time_zone, self.path)


def _require_flat(schema: Schema) -> None:
    for field in schema.fields:
        if field.schema.type in {Type.STRUCT, Type.ARRAY, Type.MAP}:
            raise ConfigError(
                problem=f"The CSV column {field.name} cannot have the type "
                f"{sql_type(field.schema)}.",
                fix="Declare it as VARIANT or STRING to read its JSON text.",
                field="schema",
            )


def follows(config: Config) -> bool:
    """Return whether the mode is grow."""
    return (config.find_str("mode") or ("grow" if _is_alias(config) else "set")) == "grow"


def location_of(config: Config) -> Location:
    """Return the location of the path. Raises ConfigError for an unknown file system."""
    return Location.of(configured_path(config))


def _is_alias(config: Config) -> bool:
    return config.originals.get("connector.class", "") in OTHER_SOURCES


def _format(config: Config, listing: Listing) -> Format:
    grows, configured = follows(config), config.find_str("format")
    if configured is not None:
        return Format(configured)
    if _is_alias(config):
        return Format.TEXT
    by_name = format_of(listing.path)
    if by_name is None and not (grows and listing.is_file):
        some = islice(listing.paths(), _LOOKED_AT_FILES)
        by_name = next((format_ for format_ in map(format_of, some) if format_), None)
    if by_name is None and grows:
        return Format.TEXT
    if by_name is None:
        raise ConfigError(
            problem=f"The file names at {listing.path} have no extension of a known format."
            if any(True for _ in listing.paths())
            else f"There are no files at {listing.path} yet that would show their format.",
            fix="Set recursive to true to read its subfolders."
            if listing.has_only_folders
            else f"Set format to one of: {', '.join(f.value for f in Format)}.",
            field="format",
        )
    return by_name
