"""The streams of a batch: as they came, with the chain laid over them, and to be delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.dataplane.chain import Routes
from headrace.dataplane.delivery import SinkPart, StagedRows
from headrace.dataplane.records import RecordFrame
from headrace.sdk import ArrowParts, ConfigError


@dataclass(frozen=True)
class StreamFrame:
    """The records of one stream in one batch.

    Args:
        application: Names the task and the stream in marks.
        rows: How many there are, where the source knows.
        only_sink: What marks call the one sink that they go to; None for all.
        part: Which of the stream's parts in this batch they are, from 0, see TransformBatch.
        arrow: The same records as Arrow, if they are to be had so.
        continues: See SinkBatch.
    """

    frame: DataFrame
    topic: str
    application: str
    rows: int | None = None
    only_sink: str | None = None
    part: int = 0
    arrow: ArrowParts | None = None
    continues: bool = False


@dataclass(frozen=True)
class TransformedStream:
    """The records of one stream with the chain laid over them.

    Where the chain has code it runs once, for all sinks, for what is counted beforehand and
    for the dead letters: it need not give the same twice. Its records are then cached.

    Args:
        source: The records as they came.
        topic: Their one topic; None where it depends on the data.
        cache: The records after the chain, where Spark caches them.
    """

    stream: StreamFrame
    source: RecordFrame
    records: RecordFrame
    routes: Routes
    topic: str | None
    cache: DataFrame | None = None


@dataclass(frozen=True)
class Delivery:
    """A stream that is to be delivered.

    Args:
        parts: The sinks' parts.
        stage: Stages one of them.
        rows: How many records there are, where that is known.
        cache: What Spark caches of them.
        is_few: Whether they are few, and written already.
    """

    parts: Sequence[SinkPart]
    stage: Callable[[SinkPart], StagedRows]
    rows: int | None = None
    cache: DataFrame | None = None
    is_few: bool = False


def require_apart(streams: Sequence[TransformedStream], topic: str, before: set[str]) -> None:
    """Raise ConfigError where transforms would make one stream of several in a topic.

    Only packed rows have their streams apart there, and those have no transforms before them.
    ``before`` are the streams that earlier batches have sent there; those of these are added.
    """
    before |= {each.stream.topic for each in streams if each.topic == topic}
    if len(before) > 1:
        raise ConfigError(
            problem=f"The streams {', '.join(sorted(before))} would be one in the topic "
            f"{topic}, as transforms stand before it: rows of one would replace those of "
            "another that have the same key.",
            fix="Move the transforms to the connectors that read the topic, or let one of them "
            "give each stream a topic of its own, such as RegexRouter.",
            field="transforms",
        )
