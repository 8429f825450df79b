"""The Delta sink's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, DeliveryGuarantee, SinkConnector
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.settings import DeltaSettings
from headrace_plugins.connectors.delta.sink import DeltaTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.config import Config

__all__ = ["DeltaSink"]


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

    settings: DeltaSettings

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        path = config.get_str("path")
        # Marks hold what this returns: a plain path has to stay as it is written.
        return str(Location.of(path)) if path.lower().startswith("file:") else path

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
        return DeltaTask(config)
