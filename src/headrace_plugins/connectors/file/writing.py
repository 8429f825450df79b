"""What both sinks need to turn records into text and into files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from typing_extensions import override

from headrace.sdk import ConfigError, Counting, FrameSink, RecordError, Refusal, Schema, Type
from headrace.sdk.folders import fixed_folder, require_writable
from headrace.sdk.schema import VARIANT
from headrace.sdk.sqltext import literal
from headrace_plugins.connectors.file.formats import Dialect, Format, format_of
from headrace_plugins.connectors.file.settings import OTHER_SINKS, location_of

if TYPE_CHECKING:
    from headrace.sdk import TaskContext
    from headrace.sdk.config import Config
    from headrace.sdk.location import Location


NO_VALUE = "HEADRACE-NO-VALUE"
TOPIC = "${topic}"
HOUSEKEEPING = "_headrace"
"""A subfolder that readers pass over, as its name begins with an underscore."""
_RESERVED = {HOUSEKEEPING, "_delta_log"}
"""Folders whose files decide what is in a target: no record becomes such a file."""
_NESTED = {Type.STRUCT, Type.ARRAY, Type.MAP}


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """What a sink writes, and where."""

    place: Location
    """The folder or file, in which ``${topic}`` may stand for a topic's name."""
    appends: bool
    """Whether lines are added to one file."""
    format: Format
    dialect: Dialect
    partition_by: tuple[str, ...]
    compression: str | None

    @classmethod
    def from_config(cls, config: Config) -> SinkSettings:
        """Read the keys. Raises ConfigError for a path or a character that is not valid."""
        place = location_of(config)
        _check_not_reserved(place)
        alias = config.originals.get("connector.class", "") in OTHER_SINKS
        appends = (config.find_str("mode") or ("append" if alias else "folder")) == "append"
        default = Format.TEXT if appends else format_of(place.name) or Format.PARQUET
        return cls(
            place=place,
            appends=appends,
            format=Format(config.find_str("format") or default),
            dialect=Dialect.from_config(config, tabs=place.name.endswith(".tsv")),
            partition_by=tuple(config.get_list("partition.by")),
            compression=config.find_str("compression"),
        )

    def target(self, topic: str) -> Location:
        """Return the folder or file for a topic, whose name can lead nowhere else."""
        name = topic.replace("/", "_")
        name = f"_{name}" if name in {".", ".."} else name
        target = replace(self.place, path=self.place.path.replace(TOPIC, name))
        _check_not_reserved(target)
        return target

    @property
    def fixed_folder(self) -> Location:
        """Return the folder that holds the targets of all topics."""
        folder = fixed_folder(self.place, TOPIC)
        return folder.parent if self.appends and TOPIC not in self.place.path else folder


def _check_not_reserved(place: Location) -> None:
    found = _RESERVED.intersection(place.path.split("/"))
    if found:
        raise ConfigError(
            problem=f"{place} is in {min(found)}, which is reserved for the log of a target.",
            fix="Choose another folder.",
            field="path",
        )


class PathSink(FrameSink):
    """Writes below the path of its settings, and measures what it wrote."""

    counting = Counting.MEASURED

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        require_writable(self._settings.fixed_folder)


def line_sql(schema: Schema) -> str:
    """Return SQL for a record's value as one text.

    A text is itself, what has parts is JSON, and nothing is ``null``, as in Kafka Connect's
    file sink.
    """
    if (schema.name == VARIANT and schema.is_logical) or schema.type in _NESTED:
        text = "to_json(value)"
    elif schema.type is Type.STRING:
        text = "value"
    elif schema.type is Type.BYTES:
        text = "decode(value, 'UTF-8')"
    else:
        text = "CAST(value AS STRING)"
    return f"coalesce({text}, 'null') AS value"


def no_tombstones(format_: Format) -> str:
    """Return a condition that stops the batch at a record without a value."""
    text = literal(f"{NO_VALUE} {format_.value}")
    return f"IF(value IS NULL, CAST(raise_error({text}) AS BOOLEAN), true)"


def tombstone_error(error: PySparkException) -> RecordError | None:
    """Return what an error of Spark means if ``no_tombstones`` raised it."""
    if NO_VALUE not in str(error):
        return None
    refusal = no_row()
    return RecordError(problem=refusal.problem, fix=refusal.fix)


def no_row() -> Refusal:
    """Return what files of rows refuse."""
    return Refusal(
        condition="value IS NULL",
        problem="A record without a value (a tombstone) cannot be written as a row of a file.",
        fix="Drop such records: a transform Filter with the predicate RecordIsTombstone.",
    )


def nested_field(schema: Schema) -> str | None:
    """Return the name of the first field that a flat format cannot hold."""
    if schema.type is not Type.STRUCT:
        return "value" if schema.type in _NESTED else None
    return next((f.name for f in schema.fields if f.schema.type in _NESTED), None)
