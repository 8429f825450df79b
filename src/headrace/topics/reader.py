"""Reads topics: as a source of the batch loop, as offsets for users, and as a preview."""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

from headrace.sdk import ConfigError, Lag, Position, ReadLimit, Schema, check_range
from headrace.sdk.delta import AddedFile
from headrace.sdk.errors import DataLostError, StateError
from headrace.topics.segments import PACKED, Place, RowRange, Segment, TopicFile
from headrace.topics.table_log import Commit
from headrace.topics.topic import Topic, Topics


@dataclass(frozen=True, slots=True)
class _Step:
    """One file of a range, or a version without files."""

    version: int
    part: int
    parts: int
    file: TopicFile | None

    @property
    def place(self) -> Place:
        """Return the place after the step."""
        whole = self.part + 1 >= self.parts
        return Place(self.version) if whole else Place(self.version, self.part + 1)


class TopicReader:
    """Plans batches over one topic. Used by one thread at a time.

    The position is ``{"topic": name} -> {"version": v}``, with ``"index": n`` if a version with
    many files is read in several batches. Positions stay valid after upkeep has rewritten the
    files: the rows are then read from a segment.

    The position also has the digest of that version's commit, ``"commit": text``. It detects a
    topic that was created again, or restored from an older copy, and has grown past the
    position. Positions that users set have no digest.
    """

    def __init__(self, topic: Topic, *, start: Position | None = None) -> None:
        """Read ``topic``.

        ``start`` is used if a position does not contain this topic, see ``parse_start``. The
        default is the very first row: ``latest`` then continues from the oldest existing row,
        but a range from there raises DataLostError once retention has removed rows.
        """
        self.topic = topic
        self._partition = {"topic": topic.name}
        self._begin = start
        self._newest = -1
        self._segments: Sequence[Segment] = ()
        self._schema: tuple[int, Schema] | None = None

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """See ReplayableSource.

        Raises DataLostError if retention has removed rows after ``start``, and if the topic
        ends before ``start`` or has another commit there: then it is not the topic that was
        read. A position without a commit digest gets one with the next batch.
        """
        self._newest = self.topic.log.newest(self._newest)
        self._require_same(start)
        offset = start.offset(self._partition)
        if offset is not None and _place_of(offset) == Place(self._newest):
            return start
        place = end = self._oldest() if self._is_unset(start) else self._place(start)
        if place.version > self._newest:
            problem = (
                f"ends at version {self._newest}, but was read up to version {place.version}"
            )
            raise self._another(problem)
        rows = size = 0
        for step in self._steps(place, self._until(limit)):
            if step.file is not None:
                self._available(step.file)
                file = step.file.file
                over_rows = limit.rows is not None and rows + file.rows > limit.rows
                bytes_then = size + file.size_bytes
                over_size = limit.size_bytes is not None and bytes_then > limit.size_bytes
                if rows and (over_rows or over_size):
                    break
                rows, size = rows + file.rows, bytes_then
            end = step.place
        return start if end == place else _position_at(self.topic, end)

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        end = self.latest(start, ReadLimit(until=until))
        first = _position_at(self.topic, self._oldest()) if self._is_unset(start) else start
        files = [] if end == start else self._added(first, end)
        return Lag(sum(file.rows for file in files), sum(file.size_bytes for file in files))

    def count(self, start: Position, end: Position) -> int:
        """Return how many rows the range has, according to the log."""
        return sum(file.rows for file in self._added(start, end))

    def files(self, start: Position, end: Position) -> list[TopicFile]:
        """Return the files of the range, in order.

        A segment may also contain rows outside the range, see ``rows``. Raises DataLostError if
        rows of the range are gone, or if the topic is not the one that the range was planned
        for, and StateError for a range of another topic, or one that goes backwards.
        """
        steps = self._steps(*self._places(start, end))
        files = [step.file for step in steps if step.file is not None]
        used: dict[str, Segment] = {}
        for file in files:
            if (segment := self._available(file)) is not None:
                used[segment.file.path] = segment
        if not used:
            return files
        # Read all rows of a segment from the segment, so that no row is read twice.
        rest = [f for f in files if not any(s.covers(f.version) for s in used.values())]
        rest += [TopicFile(s.file, s.last, segment=s) for s in used.values()]
        return sorted(rest, key=lambda file: (file.version, file.part))

    def rows(self, start: Position, end: Position) -> RowRange:
        """Return the filter for the rows of the files that are in the range."""
        return RowRange(*self._places(start, end))

    def version(self, position: Position) -> int:
        """Return the table version of a position; -1 before the first version."""
        return self._place(position).version

    def schema(self, end: Position) -> Schema:
        """Return the schema of the rows up to a position; reads only new commits."""
        version = self.version(end)
        known = self._schema
        if known is None or version < known[0] or self.topic.has_changed(known[0], version):
            self._schema = version, self.topic.schema(version)
        else:
            self._schema = version, known[1]
        return self._schema[1]

    def acknowledge(self, position: Position) -> None:
        """See ReplayableSource; a topic's rows depend only on its retention."""

    def _added(self, start: Position, end: Position) -> list[AddedFile]:
        steps = self._steps(*self._places(start, end))
        return [step.file.file for step in steps if step.file is not None]

    def _steps(self, place: Place, until: Place) -> Iterator[_Step]:
        first = place.version if place.index is not None else place.version + 1
        for version in range(first, until.version + 1):
            added = self._commit(version).added
            skip = place.index or 0 if version == place.version else 0
            stop = until.index if version == until.version else None
            if not added:
                yield _Step(version, 0, 0, None)
            for part, file in enumerate(added[:stop]):
                if part >= skip:
                    yield _Step(version, part, len(added), TopicFile(file, version, part))

    def _commit(self, version: int) -> Commit:
        try:
            return self.topic.log.commit(version)
        except FileNotFoundError as error:
            raise self._lost(version) from error

    def _available(self, file: TopicFile) -> Segment | None:
        """Return the segment with a file's rows; None if the file itself exists."""
        if (self.topic.location / file.file.path).exists():
            return None
        for segments in (self._segments, self.topic.segments()):
            for segment in segments:
                there = (self.topic.location / segment.file.path).exists()
                if segment.covers(file.version) and there:
                    self._segments = segments
                    return segment
        raise self._lost(file.version)

    def _lost(self, version: int) -> DataLostError:
        lost = self.topic.lost()
        name = self.topic.name
        if version <= lost:
            return DataLostError(
                f"Retention has removed the versions {version} to {lost} of topic {name} "
                "before they were read.",
                fix=f"Alter the task's offset to version {lost} to continue without the lost "
                "rows, and increase the topic's retention.",
            )
        return DataLostError(
            f"Version {version} of topic {name} is missing, but not because of its retention.",
            fix="Restore its files and its log, or alter the task's offset to a later version. "
            "Do not clean the topic's folder with other programs.",
        )

    def _require_same(self, position: Position) -> None:
        """Raise DataLostError unless the topic has the commit that a position names."""
        offset = self._offset(position)
        if offset is None or "commit" not in offset:
            return
        version = int(offset["version"])
        try:
            commit = self.topic.log.commit(version)
        except FileNotFoundError:
            return  # upkeep has deleted it, or the topic ends before it
        if commit.digest != offset["commit"]:
            problem = f"has a different version {version} than the one that was read"
            raise self._another(problem)

    def _another(self, problem: str) -> DataLostError:
        return DataLostError(
            f"Topic {self.topic.name} {problem}: it was created again, or restored from an "
            "older copy.",
            fix="Restore the newest copy of its folder. Or reset the offsets to read the topic "
            "from the beginning, or alter them to one of its versions.",
        )

    def _until(self, limit: ReadLimit) -> Place:
        newest = Place(self._newest)
        if limit.until is None:
            return newest
        return min(newest, self._place(limit.until), key=lambda place: place.order)

    def _is_unset(self, position: Position) -> bool:
        return self._begin is None and position.offset(self._partition) is None

    def _oldest(self) -> Place:
        return Place(self.topic.first() - 1)

    def _places(self, start: Position, end: Position) -> tuple[Place, Place]:
        check_range(start, end, [self._partition])
        first, last = self._place(start), self._place(end)
        if first.order > last.order:
            problem = (
                f"A range of topic {self.topic.name} begins after version {first.version} "
                f"and ends after version {last.version}."
            )
            raise StateError(problem)
        for position in (start, end):
            self._require_same(position)
        return first, last

    def _place(self, position: Position) -> Place:
        offset = self._offset(position)
        return Place(-1) if offset is None else _place_of(offset)

    def _offset(self, position: Position) -> Mapping[str, Any] | None:
        offset = position.offset(self._partition)
        if offset is None and self._begin is not None:
            return self._begin.offset(self._partition)
        return offset


def _place_of(offset: Mapping[str, Any]) -> Place:
    return Place(int(offset["version"]), offset.get("index"))


def _position_at(topic: Topic, place: Place) -> Position:
    offset: dict[str, int | str] = {"version": place.version}
    if place.index is not None:
        offset["index"] = place.index
    with suppress(FileNotFoundError):  # before the first version, or deleted by upkeep
        offset["commit"] = topic.log.commit(place.version).digest
    return Position.of({"topic": topic.name}, offset)


def parse_start(topic: Topic, text: str) -> Position:
    """Return where a new reader begins: earliest, latest, ``version:N`` or ``time:ISO``.

    The result changes over time, so the caller must store it.
    """
    kind, _, value = text.partition(":")
    if kind == "earliest":
        return _position_at(topic, Place(topic.first() - 1))
    if kind == "latest":
        return _position_at(topic, Place(topic.log.newest()))
    if kind == "version" and value.isdigit():
        return _position_at(topic, Place(int(value) - 1))
    if kind == "time":
        return _position_at(topic, Place(version_before(topic, _time(value))))
    problem = f"{text!r} is not a valid start."
    fix = "Use earliest, latest, version:N or time:2026-01-31T00:00:00Z."
    raise ConfigError(problem, field="topics.start", fix=fix)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        problem, fix = f"{text!r} is not a valid time.", "Use the form 2026-01-31T00:00:00Z."
        raise ConfigError(problem, field="topics.start", fix=fix) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def version_before(topic: Topic, time: datetime) -> int:
    """Return the newest version committed before ``time``; first - 1 if there is none."""
    low, high = topic.first(), topic.log.newest()
    while low <= high:
        middle = (low + high) // 2
        if topic.log.commit(middle).time < time:
            low = middle + 1
        else:
            high = middle - 1
    return high


class TopicPlaces:
    """Finds and checks positions in topics. Thread-safe."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def check(self, name: str, version: int) -> None:
        """Raise ConfigError if a reader cannot be positioned after a version of a topic.

        After a version that does not exist yet, it would skip new rows; before versions that
        retention has removed, it would fail.
        """
        topic = self._existing(name)
        first, newest = topic.first(), topic.log.newest()
        if not first - 1 <= version <= newest:
            problem = (
                f"Topic {name} has the offsets {first} to {newest}: a reader's offset must be "
                f"from {first} to {newest + 1}, not {version + 1}."
            )
            raise ConfigError(problem, field="offset", fix="Choose one of these.")

    def before(self, name: str, time: datetime) -> int:
        """Return the newest version of a topic before a time; first - 1 if there is none.

        Raises ConfigError for a topic that does not exist.
        """
        return version_before(self._existing(name), time)

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if not topic.exists():
            problem = f"Unknown topic {name}."
            raise ConfigError(problem, field="partition", fix="Use an existing topic.")
        return topic


_BATCH_ROWS = 1024
_PACKED_ROWS = 8
"""Rows per read; a packed row may have several megabytes."""


def peek(topic: Topic, rows: int, *, oldest: bool = False) -> list[dict[str, Any]]:
    """Return the newest or the oldest records of a topic, in order, as JSON values.

    Reads only as many files as needed. A record has its ``version`` and the topic's columns;
    a record of a packed topic has ``stream`` and ``value``.
    """
    if rows < 1 or not topic.exists():
        return []
    found = _oldest(topic, rows) if oldest else _newest(topic, rows)
    return list(found)


def _oldest(topic: Topic, rows: int) -> Iterator[dict[str, Any]]:
    start, shown = parse_start(topic, "earliest"), 0
    reader = TopicReader(topic)
    while (end := reader.latest(start, ReadLimit(rows=rows))) != start and shown < rows:
        for record in islice(_between(reader, start, end), rows - shown):
            shown += 1
            yield record
        start = end


def _newest(topic: Topic, rows: int) -> Iterable[dict[str, Any]]:
    version, first, seen = topic.log.newest(), topic.first(), 0
    end = start = _position_at(topic, Place(version))
    while version >= first and seen < rows:
        seen += topic.log.commit(version).rows
        version -= 1
        start = _position_at(topic, Place(version))
    return deque(_between(TopicReader(topic), start, end), maxlen=rows)


def _between(reader: TopicReader, start: Position, end: Position) -> Iterator[dict[str, Any]]:
    for file in reader.files(start, end):
        yield from _records(reader.topic, file, reader.rows(start, end))


def _records(topic: Topic, file: TopicFile, rows: RowRange) -> Iterator[dict[str, Any]]:
    schema = topic.schema()
    names = [field.name for field in schema.fields]
    packed = PACKED in names
    size = _PACKED_ROWS if packed else _BATCH_ROWS
    for batch in rows.read(topic.location / file.file.path, [*names, "version"], size):
        for row in batch.to_pylist():
            version = row.pop("version", None)
            place = {"version": file.version if version is None else version}
            if packed:
                yield from (place | record for record in _unpacked(row))
            else:
                yield place | {name: _json(value) for name, value in row.items()}


def _unpacked(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
    batch = pa.ipc.read_record_batch(pa.py_buffer(row[PACKED]), schema)
    for value in batch.to_pylist():
        yield {"stream": row["stream"], "value": _json(value)}


def _json(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _json(item) for name, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value
