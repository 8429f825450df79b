"""Reads a Delta table in batches: plans their ranges, and checks that they can be read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    DataLostError,
    FrameSource,
    Lag,
    Position,
    RetriableError,
    SourceError,
    StateError,
    check_range,
)
from headrace.sdk.location import Location
from headrace.sdk.sqltext import quote
from headrace_plugins.connectors.delta.frames import (
    PlacedFile,
    SparkTable,
    change_records,
    columns_of,
    feed_records,
    key_sql,
    row_records,
    schema_of,
    with_feed,
)
from headrace_plugins.connectors.delta.history import CHANGE_FEED, TableHistory
from headrace_plugins.connectors.delta.settings import (
    LATEST,
    DeltaSourceSettings,
    FeedFormat,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import ReadLimit, TaskContext
    from headrace_plugins.connectors.delta.history import Commit, DataFile, Definition


_LAG_VERSIONS = 1000
"""The lag, a figure for display only, is not computed over more commits than this."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a table's history.

    Args:
        version: The last version that was read, as well as all versions before it.
        index: The number of files of ``version`` that were read; None for all.
        snapshot: Whether a snapshot of the table at ``version`` is being read.
    """

    version: int
    index: int | None = None
    snapshot: bool = False

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Place:
        """Return the place of an offset."""
        index = offset.get("index")
        whole = index is None
        return cls(int(offset["version"]), index, not whole and bool(offset.get("snapshot")))

    @property
    def order(self) -> tuple[int, float]:
        """Return the sort key of places within one run."""
        return self.version, float("inf") if self.index is None else self.index

    def offset(self) -> dict[str, Any]:
        """Return the place as an offset."""
        offset: dict[str, Any] = {"version": self.version}
        if self.index is not None:
            offset["index"] = self.index
        if self.snapshot:
            offset["snapshot"] = True
        return offset


@dataclass(frozen=True, slots=True)
class _Piece:
    """The smallest part of a batch: a file, a version of a change feed, or an empty version.

    Args:
        end: The place after the piece.
        number: The index of the piece's first file in its version, or in the snapshot.
    """

    end: Place
    version: int
    files: Sequence[DataFile]
    number: int = 0
    snapshot: bool = False


class DeltaReader(FrameSource):
    """Reads one table; see DeltaSource.

    The position is ``{"path": path} -> {"version": v}``, with ``"index": n`` if only n files of
    that version were read, and ``"snapshot": true`` if these are files of the table's snapshot
    at that version. It contains the table's id (``"table"``), which detects a table that was
    dropped and created again, and a digest of the version's commit (``"commit"``), which
    detects a table that was restored from a copy and then written to. Both are optional. The
    end of a first batch also contains the start of that batch (``"begin"``).
    """

    settings: DeltaSourceSettings

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._location = Location.of(self.settings.path)
        self._history = TableHistory(self._location, self._require_allowed)
        self._partition = {"path": self.settings.path}
        self._spark: tuple[tuple[SparkSession, str], SparkTable] | None = None
        key_sql(columns_of(self._history.current), self.settings.key_fields)

    @override
    def stop(self) -> None:
        self._spark = None

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        newest = self._history.newest()
        self._require_same(start)
        begin = None
        if (place := self._place(start)) is None:
            begin = place = self._begun(limit.until) or self._begin()
        until = Place(self._last(newest, place))
        if limit.until is not None and (bound := self._place(limit.until)) is not None:
            until = min(until, bound, key=lambda each: each.order)
        until = max(until, place, key=lambda each: each.order)
        unlimited = limit.rows is None and limit.size_bytes is None
        end, files = self._limited(place, until, limit) if not unlimited else (until, None)
        if unlimited and begin is not None:
            files = any(piece.files for piece in self._pieces(place, until))
        if begin is not None and begin.snapshot and not files:
            return start  # an empty snapshot: starting later loses nothing
        if end.order <= place.order and (begin is None or begin.snapshot or end.version < 0):
            last = self.settings.ending_version
            if self.settings.window is not None and last is not None and newest < last:
                raise RetriableError(
                    problem=f"The window ends at version {last}, but the newest version is "
                    f"{newest}.",
                    fix=f"Wait until version {last} is committed.",
                )
            return start
        return self._position(end, begin, limit.until)

    def _limited(self, place: Place, until: Place, limit: ReadLimit) -> tuple[Place, bool]:
        """Return the end of a batch, and whether the batch contains any file."""
        end, count, rows, size, checked = place, 0, 0, 0, -1
        taken: list[_Piece] = []
        for piece in self._pieces(place, until):
            try:
                if piece.version > checked and not piece.snapshot:
                    self._check(self._history.commit(piece.version))
                    checked = piece.version
            except SourceError:
                if end == place:
                    raise
                break  # deliver the earlier versions first
            if end != place and self._begins_anew(piece):
                break
            count += len(piece.files)
            rows += sum(file.rows for file in piece.files)
            size += sum(file.size_bytes for file in piece.files)
            over = count > self.settings.max_files
            over = over or (limit.rows is not None and rows > limit.rows)
            over = over or (limit.size_bytes is not None and size > limit.size_bytes)
            if over and count > len(piece.files):
                break
            taken.append(piece)
            end = piece.end
        self._require_files(taken)
        return end, any(piece.files for piece in taken)

    def _begins_anew(self, piece: _Piece) -> bool:
        """Return whether the feed's columns change at a piece, which needs a new batch."""
        if piece.snapshot or not self.settings.read_change_feed:
            return False
        if self._history.commit(piece.version).metadata is None:
            return False
        before, after = map(self._history.definition, (piece.version - 1, piece.version))
        return before.fields != after.fields

    @override
    def ended(self, position: Position) -> bool:
        place, newest = self._place(position), self._history.newest()
        in_window = self.settings.window is not None
        if place is None and in_window:
            place = Place(self._begin().version)  # a snapshot here is empty: no batch was made
        if place is None or place.order < (self._last(newest, place), float("inf")):
            return False
        end, time = self.settings.ending_version, self.settings.ending_timestamp
        if end is not None:
            return place.version >= end
        return self.settings.ends or (time is not None and self._last(newest) < newest)

    @override
    def size_bytes(self, start: Position, end: Position) -> int:
        pieces = self._range(start, end)
        return sum(file.size_bytes for piece in pieces for file in piece.files)

    @override
    def lag(self, start: Position, until: Position | None = None) -> Lag:
        place = self._place(start) or self._begun(until) or self._begin()
        newest = self._history.newest()
        stop = (until and self._place(until)) or Place(self._last(newest, place))
        if stop.version - place.version > _LAG_VERSIONS:
            return Lag()
        files = [file for piece in self._pieces(place, stop) for file in piece.files]
        rows = sum(file.rows for file in files)
        return Lag(rows, sum(file.size_bytes for file in files))

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        check_range(start, end, [self._partition])
        newest = self._history.newest()
        pieces = list(self._range(start, end))
        last = self._place(end) or Place(newest)
        for version in sorted({piece.version for piece in pieces if not piece.snapshot}):
            self._check(self._history.commit(version))
        self._require_files(pieces)
        definition = self._history.definition(last.version)
        schema_of(definition)  # raises an error that names the column
        table = self._table(spark, definition)
        if not any(piece.snapshot for piece in pieces):
            self._history.forget_snapshot()
            table.forget_snapshot()
        if not self.settings.read_change_feed:
            rows = table.rows(definition, list(self._placed(pieces)))
            window = self.settings.rows_window(schema_of(definition))
            if window is not None:
                # Filters the table's own columns, so that Spark can prune files and partitions.
                rows = rows.where(window.sql(quote(window.column)))
            return row_records(rows, definition, self.settings.key_fields)
        return self._read_feed(table, definition, pieces)

    def _read_feed(
        self, table: SparkTable, definition: Definition, pieces: Sequence[_Piece]
    ) -> DataFrame:
        key, is_row = (
            self.settings.key_fields,
            self.settings.change_feed_format is FeedFormat.ROW,
        )
        snapshot = [piece for piece in pieces if piece.snapshot]
        versions = [piece.version for piece in pieces if not piece.snapshot]
        frames = []
        if snapshot or not versions:
            rows = with_feed(table.rows(definition, list(self._placed(snapshot))))
            frames.append((rows, True))
        if versions:
            changes = table.changes(definition, versions[0], versions[-1])
            frames.append((changes, False))
        records = [
            feed_records(frame, definition, key)
            if is_row
            else change_records(frame, definition, key, self.settings.path, snapshot=first)
            for frame, first in frames
        ]
        return reduce(lambda one, other: one.unionByName(other), records)

    def _table(self, spark: SparkSession, definition: Definition) -> SparkTable:
        whose = spark, definition.table
        if self._spark is None or self._spark[0] != whose:
            check = self._require_allowed
            self._spark = whose, SparkTable(spark, self._location, definition.table, check)
        return self._spark[1]

    def _placed(self, pieces: Iterable[_Piece]) -> Iterator[PlacedFile]:
        times: dict[int, int | None] = {}
        for piece in pieces:
            if piece.version not in times:
                times[piece.version] = self._history.millis(piece.version)
            millis = times[piece.version]
            for number, file in enumerate(piece.files, piece.number):
                yield PlacedFile(file, piece.version, millis, number)

    def _range(self, start: Position, end: Position) -> Iterator[_Piece]:
        """Return the pieces of a range. Raises DataLostError and StateError, as ``read``."""
        for position in (start, end):
            self._require_same(position)
        first = self._place(start) or self._begun(end) or self._begin()
        stop = self._place(end) or (first if start == end else None)
        if stop is None or first.order > stop.order:
            raise StateError(
                problem=f"A range of the table {self._location} begins at {first} and ends at "
                f"{stop}."
            )
        return self._pieces(first, stop)

    def _pieces(self, start: Place, end: Place) -> Iterator[_Piece]:
        if self.settings.read_change_feed:
            for place in (start, end):
                self._require_whole(place)
        first = start.version + (start.index is None)
        if start.snapshot:
            yield from self._snapshot_pieces(start, end)
            first = start.version + 1
        for version in range(first, end.version + 1):
            commit = self._history.commit(version)
            if self.settings.read_change_feed:
                changed = commit.changes or commit.added + commit.removed
                yield _Piece(Place(version), version, changed)
                continue
            files = self._appended(commit)
            skip = (start.index or 0) if version == start.version else 0
            stop = end.index if version == end.version and not end.snapshot else None
            if not files:
                yield _Piece(Place(version), version, ())
            for number, file in enumerate(files[:stop]):
                if number >= skip:
                    behind = Place(version, number + 1 if number + 1 < len(files) else None)
                    yield _Piece(behind, version, [file], number)

    def _require_whole(self, place: Place) -> None:
        """Raise StateError for a place inside a version: a feed cannot continue there."""
        if not place.index or place.snapshot:
            return
        version = place.version
        raise StateError(
            problem=f"{place.index} files of version {version} of the table {self._location} "
            "were read without read.change.feed, and a change feed would repeat their rows.",
            fix=f"Set read.change.feed to false and ending.version to {version} until the rest "
            "of that version is read; or reset the offsets to start with a snapshot.",
            field="read.change.feed",
        )

    def _snapshot_pieces(self, start: Place, end: Place) -> Iterator[_Piece]:
        version, count = start.version, self._history.snapshot_size(start.version)
        partial = end.snapshot and end.version == version and end.index is not None
        stop = end.index if partial else count
        files = self._history.snapshot_files(version, start.index or 0, stop or 0)
        for number, file in enumerate(files, start.index or 0):
            whole = number + 1 == count
            behind = Place(version) if whole else Place(version, number + 1, snapshot=True)
            yield _Piece(behind, version, [file], number, snapshot=True)

    def _appended(self, commit: Commit) -> Sequence[DataFile]:
        passed = self.settings.skip_change_commits and commit.removed
        return () if passed else commit.added

    def _check(self, commit: Commit) -> None:
        """Raise SourceError for a commit that cannot be read with the current settings."""
        settings, version = self.settings, commit.version
        changes = bool(commit.added or commit.removed or commit.changes)
        go_on = f'alter the offset to {{"version": {version}}} to continue after it'
        if settings.read_change_feed:
            properties = self._history.definition(version).properties
            if changes and properties.get(CHANGE_FEED) != "true":
                raise SourceError(
                    problem=f"Version {version} of the table {self._location} has no change "
                    f"feed: the property {CHANGE_FEED} was not true then.",
                    fix=f"Set the property, and {go_on}; or reset the offsets to start with a "
                    "snapshot.",
                    field="read.change.feed",
                )
        elif commit.removed and not (settings.skip_change_commits or settings.ignore_changes):
            if commit.added:
                what, more = "updates or deletes rows", ""
            elif settings.ignore_deletes:
                return
            else:
                what, more = "deletes rows", " or ignore.deletes"
            raise SourceError(
                problem=f"Version {version} of the table {self._location} {what}, but the "
                "source reads only appended rows.",
                fix="Set read.change.feed to read changes, if the table has a change feed; or "
                f"set skip.change.commits{more} to skip such commits.",
                field="skip.change.commits",
            )
        if commit.metadata is not None and version:
            self._check_columns(version, go_on)

    def _check_columns(self, version: int, go_on: str) -> None:
        try:
            before = self._history.definition(version - 1)
        except DataLostError:
            return  # the first version in the log, so nothing was read before it
        if lost := before.lost_columns(self._history.definition(version)):
            raise SourceError(
                problem=f"Version {version} of the table {self._location} makes an "
                f"incompatible change of columns: {', '.join(lost)}.",
                fix=f"Adapt the consumers of the records, and {go_on}; rows of that version "
                "itself are skipped.",
            )

    def _require_allowed(self, file: Location) -> None:
        """Raise SourceError for a file that is named in the log and may not be read."""
        try:
            self.context.check_file(file.path)
        except ConfigError as error:
            problem = (
                f"The log of the table {self._location} names a file outside of it: "
                f"{error.problem}"
            )
            raise SourceError(problem, fix=error.fix, field="path") from error

    def _require_files(self, pieces: Iterable[_Piece]) -> None:
        """Raise DataLostError if a file of a range is missing, and as _require_allowed."""
        for piece in pieces:
            for file in piece.files:
                for read in file.locations(self._location):
                    self._require_allowed(read)
                at = file.location(self._location)
                if at.exists():
                    continue
                raise DataLostError(
                    problem=f"The file {at} of version {piece.version} is gone, most likely "
                    "deleted by VACUUM: its rows can no longer be read.",
                    fix="Reset the offsets to read the table from a newer snapshot, or alter "
                    f'the offset to {{"version": {piece.version}}} to skip the rows; and '
                    "raise the table's property delta.deletedFileRetentionDuration.",
                )

    def _last(self, newest: int, place: Place | None = None) -> int:
        """Return the last version that may be read now, starting from a place."""
        settings = self.settings
        if settings.ending_version is not None:
            return min(newest, settings.ending_version)
        if settings.ending_timestamp is not None:
            end = time_of("ending.timestamp", settings.ending_timestamp)
            return min(newest, self._history.version_at(end))
        if settings.ends and settings.takes_snapshot and place is not None:
            return place.version  # the run reads the rows of that snapshot only
        return newest

    def _begin(self) -> Place:
        """Return the configured start of a new task."""
        settings, newest = self.settings, self._history.newest()
        snapshot, version = settings.takes_snapshot, settings.starting_version
        if settings.starting_timestamp is not None:
            time = time_of("starting.timestamp", settings.starting_timestamp)
            # A snapshot includes a commit at exactly that time; changes start with that commit.
            last = self._history.version_at(time if snapshot else time - 1)
            oldest = self._history.oldest()
            if last < 0 and settings.window is not None:
                return Place(last)  # the table was created later
            if last < oldest and (snapshot or oldest > 0):
                raise ConfigError(
                    problem=f"The log of the table {self._location} begins with version "
                    f"{oldest}, which is later than {settings.starting_timestamp}.",
                    fix="Set a later time, or remove the setting to start with a snapshot.",
                    field="starting.timestamp",
                )
        elif version is None or version == LATEST:
            last = self._last(newest) if snapshot else newest
            if last < 0:
                raise ConfigError(
                    problem=f"The table {self._location} was created after this time.",
                    fix="Set a later time.",
                    field="ending.timestamp",
                )
        else:
            last = int(version) - (not snapshot)
            if last > newest:
                raise too_new(newest)
        return Place(last, 0, snapshot=True) if snapshot else Place(last)

    def _begun(self, end: Position | None) -> Place | None:
        """Return the start of the batch that ends at a position, if it was the first batch."""
        offset = None if end is None else end.offset(self._partition)
        begin = None if offset is None else offset.get("begin")
        return None if begin is None else Place.of(begin)

    def _place(self, position: Position) -> Place | None:
        offset = position.offset(self._partition)
        return None if offset is None else Place.of(offset)

    def _position(self, end: Place, begin: Place | None, until: Position | None) -> Position:
        if until is not None and self._place(until) == end:
            return until
        offset = end.offset() | {"table": self._history.definition(end.version).table}
        if (digest := self._history.digest(end.version)) is not None:
            offset["commit"] = digest
        if begin is not None:
            offset["begin"] = begin.offset()
        return Position.of(self._partition, offset)

    def _require_same(self, position: Position) -> None:
        """Raise DataLostError if a position is of another table, or of an older copy."""
        offset = position.offset(self._partition)
        if offset is None:
            return
        newest, version = self._history.newest(), int(offset["version"])
        known = self._history.current.table
        if version > newest:
            problem = f"ends at version {newest}, but was read up to version {version}"
        elif offset.get("table", known) != known:
            problem = "has another id than the table that was read"
        elif self._is_another(version, offset.get("commit")):
            problem = f"has another version {version} than the one that was read"
        else:
            return
        raise DataLostError(
            problem=f"The table {self._location} {problem}: it was created again, or restored "
            "from an older copy.",
            fix="Restore the old table. Or reset the offsets to read the new table from its "
            "beginning, or alter them to one of its versions.",
        )

    def _is_another(self, version: int, digest: str | None) -> bool:
        """Return whether a version differs from the one that a digest was computed from.

        Returns False if they cannot be compared: the commit may no longer be in the log, and
        an offset that was altered has no digest of this version.
        """
        if digest is None or not digest.startswith(f"{version}-"):
            return False
        return self._history.digest(version) not in (None, digest)


def too_new(newest: int) -> ConfigError:
    """Return the error for a starting.version after the newest version."""
    return ConfigError(
        problem=f"The newest version of the table is {newest}.",
        fix=f"Set it to {newest} at most, or to latest.",
        field="starting.version",
    )
