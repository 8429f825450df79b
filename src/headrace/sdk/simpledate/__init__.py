"""Java's `SimpleDateFormat`, as SQL: texts of timestamps in UTC, and timestamps of texts.

What it takes and gives is what Java's class with an American locale takes and gives, and
Kafka Connect with it. One thing differs: days before 1582-10-15 are counted by the Gregorian
calendar, as Spark, Parquet and databases count, and not by the Julian.
"""

from headrace.sdk.simpledate.pattern import DateField, DatePattern
from headrace.sdk.simpledate.reading import read_sql, reading_fault, unreadable_sql
from headrace.sdk.simpledate.writing import write_sql

__all__ = [
    "DateField",
    "DatePattern",
    "read_sql",
    "reading_fault",
    "unreadable_sql",
    "write_sql",
]
