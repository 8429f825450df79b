"""A process that owns a task and appends its batches; run as a script.

Arguments: the topics' folder, the last batch, the epoch, and how many fields it adds.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.unit.topics.made_topics import part

from headrace.sdk import Mark, Schema
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.topics import Topic, Topics

PARTS = ((0, 1, 2), (3,))


def ids_of(batch: int) -> list[int]:
    """Return the ids that a batch brings."""
    return [10 * batch + number for numbers in PARTS for number in numbers]


def shape(fields: int) -> Schema:
    added = {f"added_{n}": Schema.string(optional=True) for n in range(fields)}
    return Schema.struct({"id": Schema.int64(optional=True), **added})


def append(topic: Topic, mark: Mark, schema: Schema) -> None:
    try:
        if topic.receipt(mark) is not None:
            return
        parts = [[{"id": 10 * mark.batch + n} for n in numbers] for numbers in PARTS]
        files = [
            part(topic, rows, schema, first=3 * number) for number, rows in enumerate(parts)
        ]
        topic.append(files, mark, mark.receipt({}), datetime.now(UTC))
    except StaleEpochError:
        return  # another owner is ahead: the next batch may be new to both


def main() -> None:
    folder, last, epoch, fields = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    topic = Topics(Location.of(folder)).get("owned")
    for batch in range(last + 1):
        schema = shape(batch % (fields + 1))
        append(topic, Mark("owner", batch, epoch), schema)


if __name__ == "__main__":
    main()
