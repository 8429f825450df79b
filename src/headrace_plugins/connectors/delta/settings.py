"""The Delta sink's settings."""

from __future__ import annotations

import re
from dataclasses import replace

from headrace.sdk import ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    Meaning,
    Range,
    Settings,
    ValidString,
    invalid,
    setting,
)
from headrace.sdk.folders import fixed_folder
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.upkeep import Vacuum

TOPIC = "${topic}"
_FOLDER_NAME = re.compile(r"(?!\.{1,2}$)[\w. -]+")


def _property(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _check_path(name: str, value: object) -> None:
    if not value:
        raise invalid(name, value, "Must be a folder", fix="Give the path of a folder.")
    Location.of(str(value), field=name)


def _check_properties(name: str, value: object) -> None:
    for text in value if isinstance(value, list | tuple) else ():
        if not all(_property(text)):
            raise invalid(name, text, "Must be name=value", fix="Write name=value.")


class DeltaSettings(Settings, group="Delta"):
    """What a Delta sink is told."""

    path: str = setting(
        "The table's folder: a path or a file:/// URL, which driver and executors reach by "
        "the same path. "
        f"{TOPIC} in it stands for the topic, for a table each.",
        validator=Lambda(_check_path, "a folder"),
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    mode: str = setting(
        "append adds each record as a row; upsert replaces the row of the same key.",
        default="append",
        validator=ValidString("append", "upsert"),
        importance=Importance.HIGH,
    )
    key_fields: tuple[str, ...] = setting(
        "For upsert: the columns that tell rows apart, taken from the record's key, "
        "or from its value if the key has none of that name. If empty, the fields of the "
        "record's key.",
        default=(),
        importance=Importance.HIGH,
    )
    delete_enabled: bool = setting(
        "For upsert: whether a record without a value deletes the row of its key. "
        "Otherwise such a record is an error.",
        default=False,
    )
    merge_spark_threshold_bytes: int = setting(
        "For upsert: from this size of the table's files on, the cluster merges; below "
        "it, a single Python worker does, in a fraction of the time.",
        default=4 * 1024**3,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    partition_by: tuple[str, ...] = setting(
        "Columns that a new table is divided by: texts, whole numbers, decimals, "
        "booleans or dates. A table that exists keeps its own.",
        default=(),
    )
    table_properties: tuple[str, ...] = setting(
        "Properties of a new table, as name=value pairs, such as "
        "delta.enableTypeWidening=true.",
        default=(),
        validator=Lambda(_check_properties, "name=value pairs"),
        importance=Importance.LOW,
    )
    optimize_interval_commits: int = setting(
        "After how many commits small files are joined, a checkpoint is written, and "
        "what crashed attempts of the task staged more than seven days ago is deleted; 0 "
        "is never.",
        default=100,
        validator=Range(at_least=0),
        importance=Importance.LOW,
    )
    vacuum_tables: Vacuum = setting(
        "At the same time, in which tables files are deleted that newer versions have "
        "replaced, once the table's delta.deletedFileRetentionDuration has passed, as "
        "VACUUM LITE does: those that this sink has created, always or never. Files that "
        "the table's log does not name as replaced are never deleted.",
        default=Vacuum.CREATED,
        importance=Importance.LOW,
    )

    @property
    def upsert(self) -> bool:
        """Whether records replace the rows of their keys."""
        return self.mode == "upsert"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        return dict(_property(text) for text in self.table_properties)

    @property
    def fixed_folder(self) -> Location:
        """Return the folder that holds the tables of all topics, or the table itself."""
        return fixed_folder(Location.of(self.path), TOPIC)

    def folder(self, topic: str) -> Location:
        """Return the folder of the table for a topic."""
        if TOPIC in self.path and not _FOLDER_NAME.fullmatch(topic):
            raise ConfigError(
                problem=f"The topic {topic!r} cannot be part of a folder's name.",
                fix="Rename it with a transform, or write it to a path of its own.",
                field="path",
            )
        place = Location.of(self.path)
        return replace(place, path=place.path.replace(TOPIC, topic))
