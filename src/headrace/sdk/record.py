"""Records: the output of captures, and the input of record sinks and record transforms."""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from headrace.sdk.errors import RecordError
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record. A record may have several headers with the same key, in order."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One record with key and value, written to or read from a topic.

    A record is immutable: the `with_` methods return new records. Values inside it (lists,
    dictionaries, structs) are shared with the copies, so build new values instead of changing
    them in place.

    Args:
        topic: The topic that the record is written to or read from. A source leaves it empty
            for the connector's own topic, and always if transforms or sinks follow directly.
        value: The value; None is a tombstone, which deletes the key.
        timestamp: The time of the event, as an aware datetime, or None if unknown.
        value_schema: The value's schema; None if the value is plain JSON.
        key_schema: The key's schema; None if the key is plain JSON.
        source_partition: For a source, the source partition of the record.
        source_offset: For a source, the offset *after* this record: reading starts there
            once the record is durable.
        offset: For a sink, the record's offset in its topic partition.

    Raises RecordError: the timestamp has no time zone.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()
    timestamp: datetime | None = None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.timestamp is not None and self.timestamp.utcoffset() is None:
            raise RecordError(
                problem=f"The timestamp {self.timestamp.isoformat()} has no time zone.",
                fix="Use an aware datetime, such as datetime.now(tz=UTC).",
                field="timestamp",
            )

    def with_topic(self, topic: str) -> "Record":
        """Return the record with another topic, which then chooses the partition."""
        return replace(self, topic=topic, partition=None)

    def with_value(self, value: Any, schema: Schema | None = None) -> "Record":
        """Return the record with another value and that value's schema."""
        return replace(self, value=value, value_schema=schema)

    def with_header(self, key: str, value: Any, schema: Schema | None = None) -> "Record":
        """Return the record with one more header, added last."""
        return replace(self, headers=(*self.headers, Header(key, value, schema)))

    def header(self, key: str) -> Header | None:
        """Return the last header with this key, or None."""
        return next((h for h in reversed(self.headers) if h.key == key), None)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values, for targets that accept JSON.

        The keys are topic, key, value, headers (a list of objects with key and value) and
        timestamp. See ``json_value`` for the forms of values.
        """
        return {
            "topic": self.topic,
            "key": json_value(self.key),
            "value": json_value(self.value),
            "headers": [{"key": h.key, "value": json_value(h.value)} for h in self.headers],
            "timestamp": json_value(self.timestamp),
        }


def json_value(value: Any) -> Any:
    """Return a value of a record as a JSON value.

    Structs and maps become objects, dates and times ISO 8601 strings, bytes Base64 strings,
    decimals strings with all digits. NaN and the infinities, which JSON lacks, become null.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case date() | time():  # a datetime is a date
            return value.isoformat()
        case Struct():
            return json_value(value.to_dict())
        case Mapping():
            pairs = [(json_value(key), json_value(item)) for key, item in value.items()]
            return {k if isinstance(k, str) else json.dumps(k): item for k, item in pairs}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            problem = f"A value of type {type(value).__name__} cannot be converted to JSON."
            raise RecordError(problem)
