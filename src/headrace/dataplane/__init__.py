"""Moves batches: `flow.py` has the steps of a batch, `sink_part.py` what one sink gets of it.

`dead_letters.py` writes dead letters; `dead_letter_queue.py` reads, replays and discards them.

Contains how a batch is read, transformed, staged and committed, by Spark or, for a few rows,
without it; also previews, trials, comparisons with a target and repairs. Does not access the
store and does not name any plugin.
"""

from headrace.dataplane.chain import Step, apply_chain, constant_topic
from headrace.dataplane.conversion import ConvertingReader, PartConverter
from headrace.dataplane.dead_letter_queue import (
    Claimed,
    DeadLetterFilter,
    DeadLetterQueue,
    ReplayReader,
)
from headrace.dataplane.dead_letters import DeadLetterWriter
from headrace.dataplane.failures import translated
from headrace.dataplane.flow import Flow
from headrace.dataplane.preview import Stage, preview
from headrace.dataplane.repairs import RepairReader, Repairs
from headrace.dataplane.sink_part import refused_of, sink_marks
from headrace.dataplane.sinks import SinkFront, as_frame_sink, sink_title
from headrace.dataplane.sources import (
    Expected,
    FrameReader,
    SourceReader,
    SplitReader,
    StreamFrameReader,
    StreamReader,
    TopicSource,
    table_records,
    topics_of,
)
from headrace.dataplane.topic_sinks import TopicsWriter, TopicWriter, topic_mark
from headrace.dataplane.trial import try_chain
from headrace.dataplane.verification import (
    Difference,
    Figures,
    TableComparison,
    TableResult,
    VerifyOptions,
)

__all__ = [
    "Claimed",
    "ConvertingReader",
    "DeadLetterFilter",
    "DeadLetterQueue",
    "DeadLetterWriter",
    "Difference",
    "Expected",
    "Figures",
    "Flow",
    "FrameReader",
    "PartConverter",
    "RepairReader",
    "Repairs",
    "ReplayReader",
    "SinkFront",
    "SourceReader",
    "SplitReader",
    "Stage",
    "Step",
    "StreamFrameReader",
    "StreamReader",
    "TableComparison",
    "TableResult",
    "TopicSource",
    "TopicWriter",
    "TopicsWriter",
    "VerifyOptions",
    "apply_chain",
    "as_frame_sink",
    "constant_topic",
    "preview",
    "refused_of",
    "sink_marks",
    "sink_title",
    "table_records",
    "topic_mark",
    "topics_of",
    "translated",
    "try_chain",
]
