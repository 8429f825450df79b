"""Topics: durable, replayable logs of records, kept as Delta tables."""

from headrace.dataplane.topics.catalog import Topics
from headrace.dataplane.topics.divided import (
    ByTopic,
    StagedTopics,
    TopicsWriter,
    rows_in,
    topic_mark,
)
from headrace.dataplane.topics.history import SchemaHistory, SchemaVersion
from headrace.dataplane.topics.letters import LETTERS, letter_headers
from headrace.dataplane.topics.log import DeltaLog
from headrace.dataplane.topics.peek import peek
from headrace.dataplane.topics.place import RowRange
from headrace.dataplane.topics.places import TopicPlaces
from headrace.dataplane.topics.reader import TopicReader, parse_start
from headrace.dataplane.topics.rows import (
    PACKED,
    packed_row_schema,
    position_sql,
    topic_row_schema,
)
from headrace.dataplane.topics.segments import Segment, TopicFile, stored_schema
from headrace.dataplane.topics.topic import Topic, TopicDescription
from headrace.dataplane.topics.upkeep import Upkeep, UpkeepPolicy, kept
from headrace.dataplane.topics.writer import TopicWriter

__all__ = [
    "LETTERS",
    "PACKED",
    "ByTopic",
    "DeltaLog",
    "RowRange",
    "SchemaHistory",
    "SchemaVersion",
    "Segment",
    "StagedTopics",
    "Topic",
    "TopicDescription",
    "TopicFile",
    "TopicPlaces",
    "TopicReader",
    "TopicWriter",
    "Topics",
    "TopicsWriter",
    "Upkeep",
    "UpkeepPolicy",
    "kept",
    "letter_headers",
    "packed_row_schema",
    "parse_start",
    "peek",
    "position_sql",
    "rows_in",
    "stored_schema",
    "topic_mark",
    "topic_row_schema",
]
