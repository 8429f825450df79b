"""The settings of the file connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace_plugins.connectors.file.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk.config import Config

__all__ = ["PATH_KEYS", "FileSinkSettings", "FileSourceSettings", "configured_path"]

PATH_KEYS = ("path", "file", "filename")
"""Ours, Kafka Connect's and RocketMQ Connect's names for the same."""


def configured_path(config: Config) -> str:
    """Return the path, under whichever of its names it was given."""
    return next(path for key in PATH_KEYS if (path := config.find_str(key)))


def _one_path(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    given = [key for key in PATH_KEYS if str(props.get(key) or "").strip()]
    if len(given) == 1:
        return
    yield ConfigError(
        problem=f"{' and '.join(given)} say the same." if given else "No path is given.",
        fix="Set path, and none of its other names.",
        field=given[-1] if given else "path",
    )


class PathAliases(Settings, group="File"):
    """The names that others have for the path."""

    rules = (_one_path,)

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
    escape: str = setting(
        "What stands before a quote inside quotes: one character. The quote itself means "
        "that it is doubled, as RFC 4180 says.",
        default='"',
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


class FileSourceSettings(PathAliases, TextSettings, group="Reading"):
    """What a file source reads."""

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
        "Mode set: whether CSV values may hold line breaks, or each JSON file is one "
        "document. Such a file is read by one Spark task.",
        default=False,
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


class FileSinkSettings(PathAliases, TextSettings, group="Writing"):
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
        "Mode folder: the fields by whose values files are put into subfolders field=value.",
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
