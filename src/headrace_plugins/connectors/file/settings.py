"""The settings of the file connectors, and a source's configuration as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError, Schema
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
from headrace_plugins.connectors.file.formats import Dialect, Format, format_of
from headrace_plugins.connectors.file.listing import Listing, Share
from headrace_plugins.replaced_window import FilledWindowSettings
from headrace_plugins.window import (
    ColumnWindow,
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
"""Ours, Kafka Connect's and RocketMQ Connect's names for the same."""


def configured_path(config: Config) -> str:
    """Return the path, under whichever of its names it was given."""
    return next(path for key in PATH_KEYS if (path := config.find_str(key)))


def _one_path(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    named = [key for key in PATH_KEYS if str(props.get(key) or "").strip()]
    if len(named) == 1:
        return
    yield ConfigError(
        problem=f"{' and '.join(named)} say the same." if named else "No path is set.",
        fix="Set path, and none of its other names.",
        field=named[-1] if named else "path",
    )


class PathAliases(Settings, group="File"):
    """The names that others have for the path."""

    rules: ClassVar[tuple[Rule, ...]] = (_one_path,)

    file: str | None = setting(
        "Kafka Connect's name for path.", default=None, meaning=Meaning.PATH
    )
    filename: str | None = setting(
        "RocketMQ Connect's name for path.", default=None, meaning=Meaning.PATH
    )


class TextSettings(Settings, group="Text formats"):
    """How texts are written."""

    header: bool = setting(
        "Whether the first line of a CSV file names the columns.", default=True
    )
    delimiter: str | None = setting(
        "What stands between the values of CSV: one character, or tab, or space. A comma "
        "if null, or a tab for files called .tsv.",
        default=None,
    )
    quote: str = setting("What stands around values of CSV: one character.", default='"')
    escape: str | None = setting(
        "What stands before a quote inside quotes, such as a backslash. A quote may be doubled "
        "too, which is the only way if null, as RFC 4180 says.",
        default=None,
    )
    null_value: str = setting(
        "The text in CSV that stands for null, such as NA, beside nothing at all.", default=""
    )
    encoding: str = setting("The encoding of text files.", default="UTF-8")
    timestamp_format: str | None = setting(
        "How timestamps are written, in Spark's datetime patterns; ISO 8601 if null.",
        default=None,
    )
    date_format: str | None = setting(
        "How dates are written, in Spark's datetime patterns; ISO 8601 if null.", default=None
    )
    time_zone: str = setting("The zone of timestamps that name none.", default="UTC")


def _valid_way(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Check that what window.by needs is there."""
    needed = {"name": "window.name.format", "column": "window.column"}.get(
        str(props.get("window.by")), "window.by"
    )
    if needed != "window.by" and not props.get(needed):
        yield ConfigError(
            problem=f"window.by is {props['window.by']}, and {needed} is not set.",
            fix=f"Set {needed}.",
            field=needed,
        )
    if props.get("window.kind") == "value" and not props.get("window.column"):
        yield ConfigError(
            problem="window.kind is value, and no column is named that has the values.",
            fix="Name it.",
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
        "What is read. By the name's extension if null.",
        default=None,
        validator=NullOr(ValidString(*(format_.value for format_ in Format))),
        importance=Importance.HIGH,
        group="File",
    )
    mode: str | None = setting(
        "set reads whole files, each once, as they appear, and warns of one that changes "
        "after it was read; grow follows files that lines are added to. set if null, or "
        "grow under Kafka Connect's and RocketMQ Connect's names.",
        default=None,
        validator=NullOr(ValidString("set", "grow")),
    )
    schema: str = setting(
        "The columns in Spark's DDL, such as id BIGINT, name STRING; infer finds them out "
        "from the files, remembers them, and adds what later files have more. VARIANT "
        "alone takes each record of JSON files as one value, where they share no shape.",
        default="infer",
        importance=Importance.HIGH,
    )
    infer_rows: int = setting(
        "How many lines of a text file are looked at to infer the schema.",
        default=10_000,
        validator=Range(at_least=1),
    )
    infer_conflicts: str = setting(
        "What a field of JSON files becomes whose values share no shape, such as a number "
        "here and an object there: variant keeps each as it is, text turns all into texts. "
        "A growing file gives texts.",
        default="variant",
        validator=ValidString("variant", "text"),
    )
    topic: str | None = setting(
        "The topic to write to; needed under Kafka Connect's name.", default=None
    )
    recursive: bool = setting("Whether subfolders are searched too.", default=False)
    multiline: bool = setting(
        "Mode set: whether each JSON file is one document, which one Spark task reads. "
        "Values of CSV may hold line breaks where they are in quotes; those of a file that "
        "Spark has to read, as a sign that is not ASCII says, only with this.",
        default=False,
    )
    timestamp_nanos: str = setting(
        "What happens to times with more digits than microseconds, which Spark does not hold: "
        "reject makes bad records of them, and truncate cuts the digits off.",
        default="reject",
        validator=ValidString("reject", "truncate"),
    )
    max_files: int = setting(
        "Mode set: the most files of a batch.", default=1000, validator=Range(at_least=1)
    )
    settle_ms: int = setting(
        "Mode set: for how long a file must not have changed before it is read, so that a "
        "copy that is under way comes to its end. A run that ends waits for it.",
        default=2000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    rotate_wait_ms: int = setting(
        "Mode grow: for how long a file that was rotated must not have changed until the "
        "next one is read. Longer than programs need to go on to their new file.",
        default=10_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
    )
    batch_size: int | None = setting(
        "Mode grow: the most lines of one poll; no limit if null.",
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    window_by: str | None = setting(
        "Mode set: what has the times of window.from and window.to. modified reads files that "
        "were changed then; name those in whose paths such a time is, see window.name.format; "
        "column reads all files and gives the rows whose window.column is in the window. If "
        "null, column where window.column is set, else name where window.name.format is, else "
        "modified.",
        default=None,
        validator=NullOr(ValidString("modified", "name", "column")),
        group="Window",
    )
    window_name_format: str | None = setting(
        "The times in paths, of the fields %Y, %m, %d, %H, %M and %S, such as "
        "dt=%Y-%m-%d/hour=%H; the last one in a path counts, in time.zone. A file without one "
        "is not read.",
        default=None,
        group="Window",
    )

    @property
    def way(self) -> str:
        """What has the times of the window."""
        by_column = self.window_column is not None
        by_name = "name" if self.window_name_format else "modified"
        by = self.window_by or ("column" if by_column else by_name)
        return "column" if self.window_kind == "value" else by

    def declared_schema(self) -> Schema | None:
        """Return the declared schema; None to infer it, a Variant where each record is one.

        Raises ConfigError for one that is not valid.
        """
        ddl = self.schema.strip()
        if ddl.lower() == "infer":
            return None
        is_variant = ddl.upper() == "VARIANT"
        return Schema.variant(optional=True) if is_variant else parse_ddl(ddl, field="schema")

    def chosen(
        self, files: Iterable[FoundFile], unnamed: Callable[[str], None]
    ) -> list[FoundFile]:
        """Return the files that are in the window, as their times or their names say.

        ``unnamed`` is called with each path that has no time.
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
        "The folder that files are put into, as a path or a file:/// URL; ${topic} in it "
        "stands for the topic's name. Mode append: the file.",
        default=None,
        importance=Importance.HIGH,
        group="File",
        meaning=Meaning.PATH,
    )
    format: str | None = setting(
        "What is written. By the name's extension if null.",
        default=None,
        validator=NullOr(ValidString(*(format_.value for format_ in Format))),
        importance=Importance.HIGH,
        group="File",
    )
    mode: str | None = setting(
        "folder adds files to a folder with each batch; append adds lines to one file. "
        "folder if null, or append under Kafka Connect's and RocketMQ Connect's names.",
        default=None,
        validator=NullOr(ValidString("folder", "append")),
    )
    partition_by: tuple[str, ...] = setting(
        "Mode folder: the fields by whose values files are put into subfolders field=value. "
        "Null and an empty text share one, as for all who read such folders.",
        default=(),
        importance=Importance.HIGH,
    )
    compression: str | None = setting(
        "Mode folder: how files are compressed; snappy for parquet and avro and none for "
        "texts if null.",
        default=None,
        validator=NullOr(
            ValidString("none", "gzip", "snappy", "zstd", "lz4", "bzip2", "deflate")
        ),
    )
    replace_window: bool = setting(
        "For offline jobs, mode folder: whether the first files of a run take the place of "
        "those that earlier runs of its window have written, so that a window may be run "
        "again.",
        default=False,
        importance=Importance.HIGH,
    )
    replace_partitions: bool = setting(
        "For offline jobs, with partition.by: as replace.window, and in each subfolder that a "
        "run writes to its files take the place of all that are there, whoever has written "
        "them. A subfolder with files of another window of the job is an error.",
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
"""In a task's configuration: which of the files are its own."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READ_BYTES = 8 * 1024 * 1024
_LOOKED_AT_FILES = 100


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """What a source and its tasks do, as their keys and the files that are there say."""

    keys: FileSourceSettings
    path: str
    """As configured; it names the source in positions and schemas."""
    listing: Listing
    grows: bool
    """Whether files are followed, instead of read as wholes."""
    format: Format
    dialect: Dialect
    schema: Schema | None
    """The declared schema; None to infer it; a Variant where each record is one."""
    read_bytes: int
    """About how much a poll reads."""
    share: Share
    windowed: bool
    """Whether only a part is read, of the files or of their rows."""

    @classmethod
    def from_config(cls, config: Config) -> SourceSettings:
        """Read the configuration of a connector or of one of its tasks.

        Raises ConfigError if the format is not clear, or a schema or a character is not valid.
        """
        keys = FileSourceSettings.from_config(config)
        path = configured_path(config)
        listing = Listing(Location.of(path), recursive=keys.recursive)
        format_ = _format(config, listing)
        schema = keys.declared_schema()
        if schema is not None and schema.name == VARIANT and format_ is not Format.JSON:
            raise ConfigError(
                problem=f"A record of {format_.value} cannot be one VARIANT.",
                fix="Set format to json, or name columns, as in payload VARIANT.",
                field="schema",
            )
        return cls(
            keys=keys,
            path=path,
            listing=listing,
            grows=follows(config),
            format=format_,
            dialect=Dialect.from_config(config, tabs=".tsv" in Path(path).suffixes),
            schema=schema,
            read_bytes=config.get("batch.max.bytes") or _READ_BYTES,
            share=Share.from_text(config.originals.get(SHARE_KEY, "0/1")),
            windowed=keys.window is not None,
        )

    def column_window(self, schema: Schema) -> ColumnWindow | None:
        """Return which rows of a schema are read; None where all are.

        Raises ConfigError: they lack the column of the window.
        """
        if self.keys.way != "column":
            return None
        return self.keys.column_window(schema, self.keys.time_zone, self.path)


def follows(config: Config) -> bool:
    """Return whether files are followed as they grow, instead of read as wholes."""
    return (config.find_str("mode") or ("grow" if _is_alias(config) else "set")) == "grow"


def location_of(config: Config) -> Location:
    """Return the place of the path. Raises ConfigError for an unknown file system."""
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
            problem=f"The names at {listing.path} do not show the format.",
            fix=f"Set format to one of: {', '.join(f.value for f in Format)}.",
            field="format",
        )
    return by_name
