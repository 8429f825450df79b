"""The keys of the file connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Range,
    ValidString,
)
from headrace_plugins.connectors.file.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk.config import Config, Validator

__all__ = ["PATH_KEYS", "configured_path", "sink_keys", "source_keys"]

PATH_KEYS = ("path", "file", "filename")
"""Ours, Kafka Connect's and RocketMQ Connect's names for the same."""

_FILE, _TEXT, _READING = "File", "Text formats", "Reading"
_Key = tuple[str, ConfigType, Any, "Validator | None", str]

_CSV: tuple[_Key, ...] = (
    (
        "header",
        ConfigType.BOOLEAN,
        True,
        None,
        "Whether the first line of a CSV file names the columns.",
    ),
    (
        "delimiter",
        ConfigType.STRING,
        None,
        None,
        (
            "What stands between the values of CSV: one character, or tab, or space. A comma "
            "if null, or a tab for files called .tsv."
        ),
    ),
    ("quote", ConfigType.STRING, '"', None, "What stands around values of CSV: one character."),
    (
        "escape",
        ConfigType.STRING,
        '"',
        None,
        (
            "What stands before a quote inside quotes: one character. The quote itself means "
            "that it is doubled, as RFC 4180 says."
        ),
    ),
    (
        "null.value",
        ConfigType.STRING,
        "",
        None,
        "The text in CSV that stands for null, such as NA, beside nothing at all.",
    ),
    ("encoding", ConfigType.STRING, "UTF-8", None, "The encoding of text files."),
    (
        "timestamp.format",
        ConfigType.STRING,
        None,
        None,
        "How timestamps are written, in Spark's datetime patterns; ISO 8601 if null.",
    ),
    (
        "date.format",
        ConfigType.STRING,
        None,
        None,
        "How dates are written, in Spark's datetime patterns; ISO 8601 if null.",
    ),
    ("time.zone", ConfigType.STRING, "UTC", None, "The zone of timestamps that name none."),
)

_SOURCE: tuple[_Key, ...] = (
    (
        "mode",
        ConfigType.STRING,
        None,
        NullOr(ValidString("set", "grow")),
        (
            "set reads whole files, each once, as they appear, and warns of one that changes "
            "after it was read; grow follows files that lines are added to. set if null, or "
            "grow under Kafka Connect's and RocketMQ Connect's names."
        ),
    ),
    (
        "schema",
        ConfigType.STRING,
        "infer",
        None,
        (
            "The columns in Spark's DDL, such as id BIGINT, name STRING; infer finds them out "
            "from the files, remembers them, and adds what later files have more. VARIANT "
            "alone takes each record of JSON files as one value, where they share no shape."
        ),
    ),
    (
        "infer.rows",
        ConfigType.INT,
        10_000,
        Range(at_least=1),
        "How many lines of a text file are looked at to infer the schema.",
    ),
    (
        "infer.conflicts",
        ConfigType.STRING,
        "variant",
        ValidString("variant", "text"),
        (
            "What a field of JSON files becomes whose values share no shape, such as a number "
            "here and an object there: variant keeps each as it is, text turns all into texts. "
            "A growing file gives texts."
        ),
    ),
    (
        "topic",
        ConfigType.STRING,
        None,
        None,
        "The topic to write to; needed under Kafka Connect's name.",
    ),
    ("recursive", ConfigType.BOOLEAN, False, None, "Whether subfolders are searched too."),
    (
        "multiline",
        ConfigType.BOOLEAN,
        False,
        None,
        (
            "Mode set: whether CSV values may hold line breaks, or each JSON file is one "
            "document. Such a file is read by one Spark task."
        ),
    ),
    (
        "max.files",
        ConfigType.INT,
        1000,
        Range(at_least=1),
        "Mode set: the most files of a batch.",
    ),
    (
        "settle.ms",
        ConfigType.LONG,
        2000,
        Range(at_least=0),
        (
            "Mode set: for how long a file must not have changed before it is read, so that a "
            "copy that is under way comes to its end. A run that ends waits for it."
        ),
    ),
    (
        "rotate.wait.ms",
        ConfigType.LONG,
        10_000,
        Range(at_least=0),
        (
            "Mode grow: for how long a file that was rotated must not have changed until the "
            "next one is read. Longer than programs need to go on to their new file."
        ),
    ),
    (
        "batch.size",
        ConfigType.INT,
        None,
        NullOr(Range(at_least=1)),
        "Mode grow: the most lines of one poll; no limit if null.",
    ),
)

_SINK: tuple[_Key, ...] = (
    (
        "mode",
        ConfigType.STRING,
        None,
        NullOr(ValidString("folder", "append")),
        (
            "folder adds files to a folder with each batch; append adds lines to one file. "
            "folder if null, or append under Kafka Connect's and RocketMQ Connect's names."
        ),
    ),
    (
        "partition.by",
        ConfigType.LIST,
        "",
        None,
        "Mode folder: the fields by whose values files are put into subfolders field=value.",
    ),
    (
        "compression",
        ConfigType.STRING,
        None,
        NullOr(ValidString("none", "gzip", "snappy", "zstd", "lz4", "bzip2", "deflate")),
        (
            "Mode folder: how files are compressed; snappy for parquet and avro and none for "
            "texts if null."
        ),
    ),
)


def source_keys() -> ConfigDef:
    """Return the source's keys."""
    return _defined((_FILE, _located("read")), (_READING, _SOURCE), (_TEXT, _CSV))


def sink_keys() -> ConfigDef:
    """Return the sink's keys."""
    return _defined((_FILE, _located("written")), ("Writing", _SINK), (_TEXT, _CSV))


def configured_path(config: Config) -> str:
    """Return the path, under whichever of its names it was given."""
    return next(path for key in PATH_KEYS if (path := config.find_str(key)))


def _located(done: str) -> tuple[_Key, ...]:
    what = (
        "A file, a folder, or a glob such as /data/**/*.csv"
        if done == "read"
        else "The folder that files are put into; ${topic} in it stands for the topic's name. "
        "Mode append: the file"
    )
    names = tuple(format_.value for format_ in Format)
    return (
        ("path", ConfigType.STRING, None, None, f"{what}."),
        ("file", ConfigType.STRING, None, None, "Kafka Connect's name for path."),
        ("filename", ConfigType.STRING, None, None, "RocketMQ Connect's name for path."),
        (
            "format",
            ConfigType.STRING,
            None,
            NullOr(ValidString(*names)),
            f"What is {done}. By the name's extension if null.",
        ),
    )


def _defined(*groups: tuple[str, tuple[_Key, ...]]) -> ConfigDef:
    definition = ConfigDef()
    for group, keys in groups:
        for order, (name, kind, default, validator, doc) in enumerate(keys, start=1):
            important = name in {"path", "format", "schema", "partition.by"}
            definition = definition.define(
                name,
                kind,
                default,
                validator=validator,
                importance=Importance.HIGH if important else Importance.MEDIUM,
                meaning=Meaning.PATH if name in PATH_KEYS else None,
                doc=doc,
                group=group,
                order=order,
            )
    return definition.rule(_one_path)


def _one_path(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    given = [key for key in PATH_KEYS if str(props.get(key) or "").strip()]
    if len(given) == 1:
        return
    yield ConfigError(
        problem=f"{' and '.join(given)} say the same." if given else "No path is given.",
        fix="Set path, and none of its other names.",
        field=given[-1] if given else "path",
    )
