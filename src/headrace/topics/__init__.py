"""Topics: durable, replayable logs of records, kept as Delta tables.

In it: the log, its readers and its upkeep. Never: Spark, or what a connector is.
"""

from headrace.topics.log import DeltaLog
from headrace.topics.reader import TopicPlaces, TopicReader, parse_start, peek
from headrace.topics.rows import (
    LETTERS,
    PACKED,
    letter_headers,
    packed_row_schema,
    position_sql,
    topic_row_schema,
)
from headrace.topics.schemas import SchemaHistory, SchemaVersion
from headrace.topics.segments import RowRange, Segment, TopicFile, stored_schema
from headrace.topics.topic import Topic, TopicDescription, Topics
from headrace.topics.upkeep import Upkeep, UpkeepPolicy, kept

__all__ = [
    "LETTERS",
    "PACKED",
    "DeltaLog",
    "RowRange",
    "SchemaHistory",
    "SchemaVersion",
    "Segment",
    "Topic",
    "TopicDescription",
    "TopicFile",
    "TopicPlaces",
    "TopicReader",
    "Topics",
    "Upkeep",
    "UpkeepPolicy",
    "kept",
    "letter_headers",
    "packed_row_schema",
    "parse_start",
    "peek",
    "position_sql",
    "stored_schema",
    "topic_row_schema",
]
