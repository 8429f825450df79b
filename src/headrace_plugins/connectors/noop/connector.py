"""A sink that discards all records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import DeliveryGuarantee, FrameSink, SinkConnector, Type
from headrace.sdk.sink import Counting
from headrace.sdk.sqltext import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sdk import Mark, SinkBatch
    from headrace.sdk.config import Config
    from headrace.sdk.sink import StagedWrite


class NoopSink(SinkConnector):
    """Computes every record and discards it, to measure the cost of a source.

    The sink stores no mark, so a retried batch is computed again.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.AT_LEAST_ONCE

    @override
    @classmethod
    def repeatable(cls, config: Config) -> bool:
        return True  # nothing is stored

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        return _Noop(config)


class _Noop(FrameSink):
    takes_many_topics = True
    counting = Counting.MEASURED

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        if batch.schema.type is Type.STRUCT:
            # A nested row costs Spark twice what a flat one does.
            names = [field.name for field in batch.schema.fields]
            columns = [f"value.{quote(name)} AS v{n}" for n, name in enumerate(names)]
            frame = frame.selectExpr("key", *columns, "headers")
        if batch.rows is not None:
            _computed(frame)
            return _Gone(batch.rows)
        # Counted last: a count in the middle makes Spark copy each row on its way.
        seen = Observation()
        _computed(frame.observe(seen, F.expr("count(1) AS rows")))
        try:
            return _Gone(int(seen.get["rows"]))
        except Py4JError:
            return _Gone(0)  # Spark proved that there are no rows, and ran no job


def _computed(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True)
class _Gone:
    """Records that were computed and thrown away."""

    rows: int

    def commit(self, receipt: str) -> None:
        """Nothing is kept."""

    def abort(self) -> None:
        """Nothing was kept."""
