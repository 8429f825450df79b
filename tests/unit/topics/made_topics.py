"""Topics whose files are made by pyarrow, and read back without Spark."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model import TopicReaders
from headrace.sdk import Mark, Position, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import AddedFile
from headrace.topics import (
    Topic,
    TopicReader,
    Topics,
    Upkeep,
    UpkeepPolicy,
    topic_row_schema,
)

START = datetime.now(UTC).replace(microsecond=0)
"""The machine's time, as commits of which a test does not set the time have it."""
ID = Schema.struct({"id": Schema.int64(optional=True)})


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, time: timedelta) -> None:
        self.now += time

    def seconds(self) -> float:
        """Return the same as a clock that nobody can set."""
        return self.now.timestamp()


def tending(
    topics: Topics,
    clock: Clock,
    policy: UpkeepPolicy | None = None,
    readers: TopicReaders = lambda _: (),
) -> Upkeep:
    """Return upkeep for which time passes as a clock says."""
    policy = policy or UpkeepPolicy()
    return Upkeep(topics, clock, policy, readers, monotonic=clock.seconds)


def tend_after(topics: Topics, time: timedelta, policy: UpkeepPolicy | None = None) -> None:
    """Look after topics now, and once more when a time has passed."""
    clock = Clock()
    upkeep = tending(topics, clock)
    upkeep.run_once()
    clock.pass_by(time)
    upkeep.policy = policy or upkeep.policy
    upkeep.run_once()


def part(
    topic: Topic, values: Sequence[Any], schema: Schema = ID, *, first: int = 0
) -> AddedFile:
    """Write values into a file of the topic that no version names yet."""
    rows = topic_row_schema(schema, None)
    topic.prepare(rows)
    columns = {"value": values, "offset": range(first, first + len(values))}
    empty = {name: [None] * len(values) for name in ("headers", "timestamp")}
    table = pa.table({**columns, **empty}, schema=to_arrow(rows))
    path = topic.location.local / "data" / "made" / f"{uuid4().hex}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    name = path.relative_to(topic.location.local).as_posix()
    return AddedFile(name, path.stat().st_size, len(values))


def append(
    topic: Topic, parts: Sequence[Sequence[int]], mark: Mark, now: datetime = START
) -> int:
    """Append ids, a file for each sequence, as of ``now``; return the version."""
    files: list[AddedFile] = []
    for ids in parts:
        first = sum(file.rows for file in files)
        files.append(part(topic, [{"id": number} for number in ids], first=first))
    version = topic.append(files, mark, mark.receipt({"batch": mark.batch}), now).version
    set_time(topic, version, now)
    return version


def set_time(topic: Topic, version: int, now: datetime) -> None:
    """Write another time into a commit: deltalake takes that of the machine."""
    path = topic.location.local / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(now.timestamp() * 1000)
    staged = path.with_suffix(".staged")
    staged.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    staged.replace(path)


def values(reader: TopicReader, start: Position, end: Position) -> list[Any]:
    """Return the values of a range as readers get them, in order."""
    schema = to_arrow(reader.schema(end))
    found = []
    for file in reader.files(start, end):
        path = reader.topic.location / file.file.path
        for batch in reader.rows(start, end).read(path, schema.names, 100):
            found += conform(batch, schema).column("value").to_pylist()
    return found


def ids(reader: TopicReader, start: Position, end: Position) -> list[int]:
    """Return the ids of a range."""
    return [value["id"] for value in values(reader, start, end)]


def at(topic: Topic, version: int, index: int | None = None) -> Position:
    """Return the position behind a version, or behind its first files, as readers give it."""
    offset = {"version": version} | ({} if index is None else {"index": index})
    commit = {"commit": topic.log.commit(version).digest} if topic.log.has(version) else {}
    return Position.of({"topic": topic.name}, {**offset, **commit})
