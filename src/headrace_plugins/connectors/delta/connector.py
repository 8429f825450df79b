"""The Delta sink's configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, DeliveryGuarantee, SinkConnector
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Lambda,
    Meaning,
    Range,
    ValidString,
    invalid,
)
from headrace_plugins.connectors.delta.sink import TOPIC, DeltaTask, Settings
from headrace_plugins.connectors.delta.upkeep import Vacuum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.config import Config

__all__ = ["DeltaSink"]

_GROUP = "Delta"
_SCHEME = re.compile(r"(?!file://)[A-Za-z][A-Za-z0-9+.-]+:/")


class DeltaSink(SinkConnector):
    """Writes records to Delta tables, exactly once.

    Each batch is one transaction that holds the rows, the batch's mark and its receipt, so a
    batch that runs again changes nothing. The table is made at the first batch; all its
    columns may be null, so that it can follow its source. Columns are matched by name,
    whatever their case.

    In mode `append` each record is a row; a tombstone is an error. In mode `upsert` a record
    replaces the row with its key or becomes a new one, the last record of each key in a batch
    counts, columns that the record lacks keep their values, and a tombstone deletes the row
    if `delete.enabled` says so.

    Commits are made without delta-spark wherever the table allows it, in a fraction of the
    time; constraints, generated columns, column mapping, types that have to grow, and merges
    into large tables go through it.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return _with_table(_with_writing(ConfigDef()))

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        return config.get_str("path").removeprefix("file://")

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        if config.get_bool("delete.enabled") and config.get_str("mode") == "append":
            yield ConfigError(
                problem="A table that is only appended to deletes no rows.",
                fix="Set mode to upsert, or leave delete.enabled out.",
                field="delete.enabled",
            )

    @override
    @classmethod
    def task(cls, config: Config) -> DeltaTask:
        properties = dict(_property(text) for text in config.get_list("table.properties"))
        return DeltaTask(
            Settings(
                path=config.get_str("path"),
                upsert=config.get_str("mode") == "upsert",
                keys=config.get_list("key.fields"),
                deletes=config.get_bool("delete.enabled"),
                partition_by=config.get_list("partition.by"),
                properties=properties,
                merge_bytes=config.get_int("merge.spark.threshold.bytes"),
                upkeep_commits=config.get_int("optimize.interval.commits"),
                vacuum=Vacuum(config.get_str("vacuum.tables")),
            )
        )


def _with_writing(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "path",
            ConfigType.STRING,
            validator=Lambda(_check_path, "a folder"),
            importance=Importance.HIGH,
            meaning=Meaning.PATH,
            doc="The table's folder, which driver and executors reach by the same path. "
            f"{TOPIC} in it stands for the topic, for a table each.",
            group=_GROUP,
            order=1,
        )
        .define(
            "mode",
            ConfigType.STRING,
            "append",
            validator=ValidString("append", "upsert"),
            importance=Importance.HIGH,
            doc="append adds each record as a row; upsert replaces the row of the same key.",
            group=_GROUP,
            order=2,
        )
        .define(
            "key.fields",
            ConfigType.LIST,
            "",
            importance=Importance.HIGH,
            doc="For upsert: the columns that tell rows apart, taken from the record's key, "
            "or from its value if the key has none of that name. If empty, the fields of the "
            "record's key.",
            group=_GROUP,
            order=3,
        )
        .define(
            "delete.enabled",
            ConfigType.BOOLEAN,
            default=False,
            doc="For upsert: whether a record without a value deletes the row of its key. "
            "Otherwise such a record is an error.",
            group=_GROUP,
            order=4,
        )
        .define(
            "merge.spark.threshold.bytes",
            ConfigType.LONG,
            4 * 1024**3,
            validator=Range(at_least=0),
            importance=Importance.LOW,
            doc="For upsert: from this size of the table's files on, the cluster merges; below "
            "it, a single Python worker does, in a fraction of the time.",
            group=_GROUP,
            order=5,
        )
    )


def _with_table(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "partition.by",
            ConfigType.LIST,
            "",
            doc="Columns that a new table is divided by: texts, whole numbers, decimals, "
            "booleans or dates. A table that exists keeps its own.",
            group=_GROUP,
            order=6,
        )
        .define(
            "table.properties",
            ConfigType.LIST,
            "",
            validator=Lambda(_check_properties, "name=value pairs"),
            importance=Importance.LOW,
            doc="Properties of a new table, as name=value pairs, such as "
            "delta.enableTypeWidening=true.",
            group=_GROUP,
            order=7,
        )
        .define(
            "optimize.interval.commits",
            ConfigType.INT,
            100,
            validator=Range(at_least=0),
            importance=Importance.LOW,
            doc="After how many commits small files are joined, a checkpoint is written, and "
            "what crashed attempts of the task staged more than seven days ago is deleted; 0 "
            "is never.",
            group=_GROUP,
            order=8,
        )
        .define(
            "vacuum.tables",
            ConfigType.STRING,
            Vacuum.CREATED.value,
            validator=ValidString(*(each.value for each in Vacuum)),
            importance=Importance.LOW,
            doc="At the same time, in which tables files are deleted that newer versions have "
            "replaced, once the table's delta.deletedFileRetentionDuration has passed, as "
            "VACUUM LITE does: those that this sink has created, always or never. Files that "
            "the table's log does not name as replaced are never deleted.",
            group=_GROUP,
            order=9,
        )
    )


def _check_path(name: str, value: object) -> None:
    path = str(value or "")
    if not path or _SCHEME.match(path):
        raise invalid(
            name,
            value,
            "Must be a folder",
            fix="Give the path of a folder, on a file system that is mounted everywhere.",
        )


def _check_properties(name: str, value: object) -> None:
    for text in value if isinstance(value, list | tuple) else ():
        if not all(_property(text)):
            raise invalid(name, text, "Must be name=value", fix="Write name=value.")


def _property(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()
