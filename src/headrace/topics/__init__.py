"""Topics: durable, replayable logs of records, stored as Delta tables.

Contains `topic.py`, readers and upkeep; `segments.py` has the columns, and `log.py` Delta's
transaction log. Does not use Spark and does not know connectors.
"""

from headrace.topics.reader import TopicPlaces, TopicReader, parse_start, peek
from headrace.topics.schemas import SchemaVersion
from headrace.topics.segments import (
    LETTERS,
    PACKED,
    RowRange,
    letter_headers,
    packed_row_schema,
    position_sql,
    stored_schema,
    topic_row_schema,
)
from headrace.topics.table_log import DeltaLog
from headrace.topics.topic import Topic, Topics
from headrace.topics.upkeep import Upkeep, UpkeepPolicy, maintained

__all__ = [
    "LETTERS",
    "PACKED",
    "DeltaLog",
    "RowRange",
    "SchemaVersion",
    "Topic",
    "TopicPlaces",
    "TopicReader",
    "Topics",
    "Upkeep",
    "UpkeepPolicy",
    "letter_headers",
    "maintained",
    "packed_row_schema",
    "parse_start",
    "peek",
    "position_sql",
    "stored_schema",
    "topic_row_schema",
]
