"""Spark, and nowhere else in the kernel: sources, flow, sinks, topics."""

from headrace.dataplane.chain import Step, constant_topic
from headrace.dataplane.conversion import ConvertingReader, PartConverter
from headrace.dataplane.deadletters import DeadLetters
from headrace.dataplane.errorlog import ErrorLog
from headrace.dataplane.evolution import Evolution
from headrace.dataplane.flow import Flow
from headrace.dataplane.jobs import SparkJobs
from headrace.dataplane.jvm import JvmFigures, JvmWatch
from headrace.dataplane.letterbox import Claimed, Letterbox, LetterFilter
from headrace.dataplane.prepare import prepare
from headrace.dataplane.preview import Stage, preview
from headrace.dataplane.refusing import refused_of
from headrace.dataplane.replays import ReplayReader
from headrace.dataplane.session import close_session, open_session
from headrace.dataplane.sink_receipts import sink_marks
from headrace.dataplane.sinkfront import SinkFront, sink_title
from headrace.dataplane.sinks import as_frame_sink
from headrace.dataplane.sources import (
    FrameReader,
    SourceReader,
    SplitReader,
    StreamReader,
    TopicSource,
)
from headrace.dataplane.supervisor import DeathLimit, SparkSupervisor
from headrace.dataplane.topics import (
    Topic,
    TopicReader,
    Topics,
    TopicsWriter,
    TopicWriter,
    parse_start,
    peek,
    topic_mark,
)
from headrace.dataplane.trial import try_chain

__all__ = [
    "Claimed",
    "ConvertingReader",
    "DeadLetters",
    "DeathLimit",
    "ErrorLog",
    "Evolution",
    "Flow",
    "FrameReader",
    "JvmFigures",
    "JvmWatch",
    "LetterFilter",
    "Letterbox",
    "PartConverter",
    "ReplayReader",
    "SinkFront",
    "SourceReader",
    "SparkJobs",
    "SparkSupervisor",
    "SplitReader",
    "Stage",
    "Step",
    "StreamReader",
    "Topic",
    "TopicReader",
    "TopicSource",
    "TopicWriter",
    "Topics",
    "TopicsWriter",
    "as_frame_sink",
    "close_session",
    "constant_topic",
    "open_session",
    "parse_start",
    "peek",
    "prepare",
    "preview",
    "refused_of",
    "sink_marks",
    "sink_title",
    "topic_mark",
    "try_chain",
]
