"""Topics: durable, replayable logs of records, kept as Delta tables.

In it: the log, its readers and its upkeep. Never: Spark, or what a connector is.
"""

from headrace.topics.catalog import Topics
from headrace.topics.history import SchemaHistory, SchemaVersion
from headrace.topics.letters import LETTERS, letter_headers
from headrace.topics.log import DeltaLog
from headrace.topics.peek import peek
from headrace.topics.place import RowRange
from headrace.topics.places import TopicPlaces
from headrace.topics.reader import TopicReader, parse_start
from headrace.topics.rows import (
    PACKED,
    packed_row_schema,
    position_sql,
    topic_row_schema,
)
from headrace.topics.segments import Segment, TopicFile, stored_schema
from headrace.topics.topic import Topic, TopicDescription
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
