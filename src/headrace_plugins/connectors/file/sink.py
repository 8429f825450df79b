"""The file sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, DeliveryGuarantee, SinkConnector
from headrace.sdk.folders import folder_findings
from headrace.sdk.schema import primary_key
from headrace.sdk.tables import TableRows
from headrace_plugins.connectors.file.folder import CODECS, TEXT_CODECS, FolderSink
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.linefile import LineFileSink
from headrace_plugins.connectors.file.output import SinkSettings
from headrace_plugins.connectors.file.settings import OTHER_SINKS, FileSinkSettings, location_of
from headrace_plugins.window import filled_window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Boundaries, FrameSink, Schema
    from headrace.sdk.config import Config
    from headrace.sdk.connector import Finding


class FileSink(SinkConnector):
    """Writes records as files of a folder, or as lines of one file.

    With `replace.window`, the first batch of an offline job's run replaces the files that
    earlier runs of the same window wrote; with `replace.partitions`, a run also replaces all
    other files in the subfolders that it writes to.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    aliases = OTHER_SINKS

    settings: FileSinkSettings

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        return str(location_of(config))

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        try:
            settings = SinkSettings.from_config(config)
        except ConfigError as error:
            yield error
            return
        if settings.appends:
            yield from _wrong_to_append(settings)
        elif (found := settings.fixed_folder.info()) is not None and not found.is_folder:
            yield ConfigError(
                problem=f"{settings.fixed_folder} is a file.",
                fix="Choose a folder, or set mode to append.",
                field="path",
            )
        known = CODECS.get(settings.format, TEXT_CODECS)
        if settings.compression is not None and settings.compression not in known:
            yield ConfigError(
                problem=f"Format {settings.format.value} does not support compression "
                f"{settings.compression}.",
                fix=f"Choose one of: {', '.join(known)}.",
                field="compression",
            )
        if settings.partition_by and settings.format is Format.TEXT:
            yield ConfigError(
                problem="Format text has no fields to partition by.",
                fix="Set format to json, csv, parquet or avro.",
                field="partition.by",
            )
        key = settings.replacing_key
        if key is not None and settings.appends:
            yield ConfigError(
                problem=f"Mode append does not support {key}.",
                fix=f"Set mode to folder, or remove {key}.",
                field=key,
            )
        elif settings.keys.replace_partitions and not settings.partition_by:
            yield ConfigError(
                problem="replace.partitions requires partition.by.",
                fix="Set partition.by, or use replace.window instead of replace.partitions.",
                field=key,
            )

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        settings = SinkSettings.from_config(config)
        key = settings.replacing_key
        if key is None:
            return {**config.originals}
        if settings.keys.replace_partitions and boundaries.upper is None:
            raise ConfigError(
                problem="A run without an end cannot replace partitions, because it continues "
                "some of the existing ones.",
                fix="Set mode to offline, or use replace.window instead of replace.partitions.",
                field=key,
            )
        return filled_window(config, boundaries, key)

    @override
    @classmethod
    def repeatable(cls, config: Config) -> bool:
        return SinkSettings.from_config(config).replacing_key is not None

    @override
    @classmethod
    def takes_overlaps(cls, config: Config) -> bool:
        return False  # each window has its own files

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        wrong = list(super().examine(config))
        yield from wrong or folder_findings(SinkSettings.from_config(config).fixed_folder)

    @override
    @classmethod
    def table_rows(
        cls, config: Config, topic: str, schema: Schema
    ) -> Sequence[TableRows] | None:
        settings = SinkSettings.from_config(config)
        if settings.appends or settings.format is not Format.PARQUET or settings.partition_by:
            return None  # text formats do not store the types of values
        folder = settings.target(topic)
        if not folder.exists() or not any(e.name.endswith(".parquet") for e in folder.list()):
            return ()

        def read(spark: SparkSession) -> DataFrame:
            return spark.read.option("mergeSchema", "true").parquet(folder.spark_path)

        return [TableRows(topic, str(folder), None, primary_key(schema), read)]

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        settings = SinkSettings.from_config(config)
        return LineFileSink(settings) if settings.appends else FolderSink(settings)


def _wrong_to_append(settings: SinkSettings) -> Iterable[ConfigError]:
    if settings.format not in {Format.TEXT, Format.JSON}:
        yield ConfigError(
            problem=f"Mode append does not support format {settings.format.value}.",
            fix="Set format to text or json, or mode to folder.",
            field="format",
        )
    if settings.partition_by or settings.compression:
        yield ConfigError(
            problem="Mode append writes one uncompressed file.",
            fix="Remove partition.by and compression, or set mode to folder.",
            field="partition.by" if settings.partition_by else "compression",
        )
