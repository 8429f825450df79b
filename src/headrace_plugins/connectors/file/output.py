"""What both file sinks use: settings, records as text and files, and the commit marks."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

from typing_extensions import override

from headrace.sdk import ConfigError, FrameSink, RecordError, Refusal, Schema, SinkError, Type
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.folders import (
    check_placeholders,
    fixed_folder,
    require_writable,
    unstorable_value,
)
from headrace.sdk.schema import VARIANT
from headrace.sdk.sink import Counting
from headrace.sdk.sqltext import literal, quote, sql_type
from headrace_plugins.connectors.file.formats import Dialect, Format, format_of
from headrace_plugins.connectors.file.settings import (
    OTHER_SINKS,
    FileSinkSettings,
    location_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    from headrace.sdk import Mark, TaskContext
    from headrace.sdk.config import Config
    from headrace.sdk.location import Location


_REFUSED = "HEADRACE-REFUSED"
TOPIC = "${topic}"
HOUSEKEEPING = "_headrace"
"""A subfolder that readers skip, as its name begins with an underscore."""
_RESERVED = {HOUSEKEEPING, "_delta_log"}
"""Folders whose files define the content of a target: no record may be written there."""
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Formats of times: Spark's default formats have only milliseconds."""
_TIMES_SQL = ", ".join(literal(text) for pair in TIMES.items() for text in pair)
_AVRO_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NESTED = {Type.STRUCT, Type.ARRAY, Type.MAP}


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """The configuration of a sink: the target and the format."""

    place: Location
    """The folder or file; ``${topic}`` in it is replaced with a topic's name."""
    appends: bool
    """Whether the mode is append, else folder."""
    format: Format
    dialect: Dialect
    partition_by: tuple[str, ...]
    compression: str | None
    keys: FileSinkSettings

    @classmethod
    def from_config(cls, config: Config) -> SinkSettings:
        """Parse the keys. Raises ConfigError for an invalid path or character."""
        place = location_of(config)
        check_placeholders("path", place.path, (TOPIC,))
        _check_not_reserved(place)
        keys = FileSinkSettings.from_config(config)
        alias = config.originals.get("connector.class", "") in OTHER_SINKS
        appends = (keys.mode or ("append" if alias else "folder")) == "append"
        default = Format.TEXT if appends else format_of(place.name) or Format.PARQUET
        return cls(
            place=place,
            appends=appends,
            format=Format(keys.format or default),
            dialect=Dialect.from_config(config, tabs=place.name.endswith(".tsv")),
            partition_by=keys.partition_by,
            compression=keys.compression,
            keys=keys,
        )

    @property
    def replacing_key(self) -> str | None:
        """Return the key that lets a run replace earlier files; None if neither is set."""
        if self.keys.replace_partitions:
            return "replace.partitions"
        return "replace.window" if self.keys.replace_window else None

    def target(self, topic: str) -> Location:
        """Return the folder or file for a topic; the name cannot lead to another folder."""
        name = topic.replace("/", "_")
        name = f"_{name}" if name in {".", ".."} else name
        target = replace(self.place, path=self.place.path.replace(TOPIC, name))
        _check_not_reserved(target)
        return target

    @property
    def fixed_folder(self) -> Location:
        """Return the folder that contains the targets of all topics."""
        folder = fixed_folder(self.place, TOPIC)
        return folder.parent if self.appends and TOPIC not in self.place.path else folder


def _check_not_reserved(place: Location) -> None:
    found = _RESERVED.intersection(place.path.split("/"))
    if found:
        raise ConfigError(
            problem=f"{place} is in {min(found)}, which is reserved for a target's log.",
            fix="Choose another folder.",
            field="path",
        )


class PathSink(FrameSink):
    """Writes below the path of its settings, and counts the rows that it wrote."""

    counting = Counting.MEASURED

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        require_writable(self._settings.fixed_folder)


def without_zones(sql: str, schema: Schema) -> str:
    """Return SQL of a value with its local times cast to TIMESTAMP_NTZ."""
    kind = sql_type(schema, local="TIMESTAMP_NTZ")
    return sql if kind == sql_type(schema) else f"CAST({sql} AS {kind})"


def line_sql(schema: Schema) -> str:
    """Return SQL for a record's value as one line.

    A string is written as it is, a nested value as JSON, and a null as ``null``, as in Kafka
    Connect's file sink.
    """
    if (schema.name == VARIANT and schema.is_logical) or schema.type in _NESTED:
        text = f"to_json({without_zones('value', schema)}, map({_TIMES_SQL}))"
    elif schema.type is Type.STRING:
        text = "value"
    elif schema.type is Type.BYTES:
        text = "decode(value, 'UTF-8')"
    else:
        text = "CAST(value AS STRING)"
    return f"coalesce({text}, 'null') AS value"


def refusals(settings: SinkSettings, schema: Schema) -> list[Refusal]:
    """Return the records that the configured format cannot store."""
    found = []
    if schema.optional and settings.format is not Format.TEXT:
        found.append(
            Refusal(
                condition="value IS NULL",
                problem="A record without a value (a tombstone) cannot be written as a row of "
                "a file.",
                fix="Drop such records: a transform Filter with the predicate "
                "RecordIsTombstone.",
            )
        )
    names = [f.name for f in schema.fields if f.name not in settings.partition_by]
    if settings.format is Format.CSV and not settings.dialect.null_value and len(names) <= 1:
        column = "".join(f".{quote(name)}" for name in names)
        found.append(
            Refusal(
                condition=f"value{column} IS NULL",
                problem="CSV with one column cannot store null: the line would be empty.",
                fix="Set null.value, such as NULL.",
            )
        )
    texts = [f.name for f in schema.fields if f.schema.type is Type.STRING]
    found += (
        unstorable_value(name, f"value.{quote(name)}")
        for name in settings.partition_by
        if name in texts
    )
    return found


def stopping(frame: DataFrame, refusals: Sequence[Refusal]) -> DataFrame:
    """Return a frame whose job fails at the first record that is refused."""
    for number, refusal in enumerate(refusals):
        text = literal(f"{_REFUSED} {number}.")
        error = f"CAST(raise_error({text}) AS BOOLEAN)"
        frame = frame.where(f"IF({refusal.condition}, {error}, true)")
    return frame


def refusal_error(error: PySparkException, refusals: Sequence[Refusal]) -> RecordError | None:
    """Return the RecordError for a Spark error that ``stopping`` raised; None for others."""
    for number, refusal in enumerate(refusals):
        if f"{_REFUSED} {number}." in str(error):
            return RecordError(problem=refusal.problem, fix=refusal.fix)
    return None


def check_avro_names(schema: Schema) -> None:
    """Raise SinkError if a field has a name that Avro does not allow."""
    for struct in schema.walk():
        for field in struct.fields:
            if not _AVRO_NAME.fullmatch(field.name):
                raise SinkError(
                    problem=f"Avro does not allow the field name {field.name!r}.",
                    fix="Rename the field with the transform ReplaceField to a letter or _, "
                    "followed by letters, digits and _; or use another format.",
                )


def nested_field(schema: Schema) -> str | None:
    """Return the name of the first field that a flat format cannot store; None for none."""
    if schema.type is not Type.STRUCT:
        return "value" if schema.type in _NESTED else None
    return next((f.name for f in schema.fields if f.schema.type in _NESTED), None)


_NAME_CHARS = 120
_ATTEMPT = re.compile(r"\d+-(\d+)")


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest batch of an application in a target.

    Args:
        application, batch, epoch: As in ``Mark``.
        receipt: What the runtime stores with the batch.
        moves: The staged path and the final path of each file of the batch. Some files may
            not have been moved yet.
        removed: The files that the batch replaces. Some may not have been deleted yet.
    """

    application: str
    batch: int
    epoch: int
    receipt: str
    moves: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, tree: Any) -> Committed:
        """Parse the result of ``asdict``."""
        moves = tuple((old, new) for old, new in tree["moves"])
        return cls(**{**tree, "moves": moves, "removed": tuple(tree.get("removed", ()))})


def held_receipt(held: Committed | None, mark: Mark) -> str | None:
    """Return the receipt of a committed batch; raise StaleEpochError if a newer one exists."""
    if held is None or held.batch < mark.batch:
        return None
    if held.batch > mark.batch:
        raise mark.newer(held.batch)
    return held.receipt


def check_epoch(held: Committed | None, mark: Mark) -> None:
    """Raise StaleEpochError if a newer owner of the task has already committed a batch."""
    if held is not None and held.epoch > mark.epoch:
        raise StaleEpochError(
            problem=f"Batch {mark.batch} of {mark.application} has epoch {mark.epoch}, but "
            f"the target already has batch {held.batch} of epoch {held.epoch}.",
            fix="No action is needed: the new owner of the task continues.",
        )


def encoded(application: str) -> str:
    """Return a unique file name for an application, which may contain slashes."""
    name = percent_encoded(application, safe="").replace(".", "%2E")
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.blake2b(application.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_CHARS]}~{digest}"


def staging_folder(house: Location, mark: Mark) -> Location:
    """Return the staging folder of an attempt; no other attempt writes to it."""
    return house / f"staging/{encoded(mark.application)}/{mark.batch:012d}-{mark.epoch}"


def read_json(path: Location) -> Any:
    """Return the parsed JSON file; None if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SinkError(
            problem=f"{path} is not valid JSON: {error}.",
            fix="Find out who changed that file, and restore it from a backup.",
        ) from error


def discard_attempts(house: Location, mark: Mark) -> None:
    """Delete the staging folders of this attempt and older ones; a newer one may be active."""
    for attempt in staging_folder(house, mark).parent.list():
        found = _ATTEMPT.fullmatch(attempt.name)
        if found is not None and int(found[1]) <= mark.epoch:
            attempt.location.delete_folder()


def checked_below(named: str, folder: Location, state: Location) -> Location:
    """Return the location of a path in a state file. Raises SinkError if outside ``folder``."""
    place = folder / named
    if not place.is_below(folder):
        raise SinkError(
            problem=f"{state} names {named}, which is not in {folder}.",
            fix="Find out who changed that file, and restore it from a backup.",
        )
    return place
