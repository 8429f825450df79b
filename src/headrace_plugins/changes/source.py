"""Follows the changes of tables: reads a snapshot of their rows, then the log."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import ExitStack, suppress
from functools import partial, reduce
from typing import TYPE_CHECKING

import structlog
from typing_extensions import override

from headrace.sdk import (
    DataLostError,
    HeadraceError,
    Lag,
    Position,
    ReadLimit,
    RetriableError,
    SourceError,
    check_range,
)
from headrace.sdk.sources import StreamFrameSource, StreamRows
from headrace_plugins.changes.batch_streams import BatchStreams, cursor_of
from headrace_plugins.changes.database_log import LogWindow, TableWriters, followed_tables
from headrace_plugins.changes.position import (
    INITIAL,
    SEEN,
    UNTIL,
    WHERE,
    all_read,
    begun_offset,
    followed,
    has_given_up,
    has_rows_between,
    is_read,
    moved_over,
    partition_of,
    require_own,
    settled,
    try_condition,
    without_lost,
)
from headrace_plugins.changes.process import LogProcess
from headrace_plugins.changes.replay import AT, SINCE, TABLES, ReplayReader, asked
from headrace_plugins.changes.settings import ChangeSettings, SnapshotMode, paused_tables
from headrace_plugins.changes.spool import by_table, taken
from headrace_plugins.databases.catalog import Table, TableName
from headrace_plugins.databases.cursors import Rows
from headrace_plugins.databases.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import TaskContext
    from headrace_plugins.changes.database_log import DatabaseLog, Snapshot
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.changes.spool import SpooledRun
    from headrace_plugins.databases.database import Session

log = structlog.get_logger(__name__)

_IDLE_BYTES = 16 << 20
"""After this much log without changes of our tables, the position advances immediately."""
_NEWS_SECONDS, _CONNECT_SECONDS = 0.5, 10.0
"""How long an idle task waits for new changes, and at first for the reader to connect."""
_LOOK_SECONDS = 0.1
_GATHER_SECONDS, _MANY_ROWS, _FAR_BYTES = 2.0, 200_000, 8 << 20
"""The time and row limits of collecting a batch, while the log is this many bytes ahead."""


class ChangeTask(StreamFrameSource):
    """Follows the tables of one database, with one stream per table.

    The first batch stores the start of the log. The next batches read the tables, and then the
    log is followed. Log changes that a snapshot already contains are skipped, as are all
    changes of tables that are not yet read. A new table is read between batches of the log,
    while the other tables continue.

    The rows that a batch reads of a table are never older than those of earlier batches, and
    every later change follows in a later batch. So an upsert target ends up with the source's
    data, even if a batch is retried and reads newer rows.
    """

    settings: ChangeSettings

    @classmethod
    @abstractmethod
    def log_of(cls, settings: ChangeSettings, connector: str) -> DatabaseLog:
        """Return the log of the database in a connector's settings.

        Raises ConfigError for a database of another kind.
        """

    # --- lifecycle ------------------------------------------------------------------

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._log = self.log_of(self.settings, context.connector)
        self._database = self._log.database
        self._selection = Selection.of(self.settings, self._database)
        self._paused = paused_tables(self.settings, self._database)
        self._session: Session | None = None
        self._tables: dict[str, Table] = {}
        self._looked = self._moved = -float("inf")
        self._process: LogProcess | None = None
        self._replays = ReplayReader(
            self._log,
            self._selection,
            self.context.scratch / "replay",
            self.settings.max_queue_size_in_bytes,
        )
        self._was_replay = False
        self._confirmed: Offset | None = None
        self._begun: Offset | None = None
        self._window = LogWindow(self._log, self.settings.window)
        self._holding = ExitStack()
        self._snapshot: Snapshot | None = None
        self._was_table = False
        self._unknown: list[str] = []
        """Tables that count as read, but whose changes the log lacks."""
        self._passed = frozenset[TableName]()
        self._writers = TableWriters(self._writers_of)

    @override
    def stop(self) -> None:
        if not hasattr(self, "_holding"):
            return
        self._holding.close()
        self._stop_reading()
        if self._session is not None:
            self._session.close()

    def _asking(self) -> Session:
        self._session = self._database.idle(self._session)
        return self._session

    def _rest(self) -> None:
        """End the transaction of our queries: its locks would block others."""
        if self._session is not None:
            with suppress(HeadraceError):  # the next query reports the error
                self._session.rollback()

    def _expect_another_server(self) -> None:
        """Make a retry check the tables again, and restart a failed reader process."""
        self._looked = -float("inf")
        if self._process is not None:
            with suppress(HeadraceError):  # at the retry it would report a past outage
                self._process.raise_error()

    # --- planning -------------------------------------------------------------------

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        try:
            return self._with_tables(self._latest(start, limit))
        except DataLostError:
            if self.settings.snapshot_mode is not SnapshotMode.WHEN_NEEDED:
                raise
            log.warning("the log has lost changes; all tables are read again", exc_info=True)
            self._stop_reading()
            # An earlier snapshot lacks the changes that the log has lost.
            self._drop_snapshot()
            self._begun = None
            # Tables that were followed must still be followed, or be reported.
            self._look(start.without(self._log.partition))
            self._looked = -float("inf")  # until the restart's first batch, the loss recurs
            if limit.until is None and limit.rows is None:
                return self._all_read(Position())  # the end position of `--once`
            return Position.of(self._log.partition, self._first(restart=True))
        except RetriableError:
            self._expect_another_server()
            raise
        finally:
            self._rest()

    def _with_tables(self, end: Position) -> Position:
        """Return a position that includes the followed tables, if there is no snapshot.

        After a restart the task then knows these tables.
        """
        is_bare = self.settings.snapshot_mode is SnapshotMode.NO_DATA
        is_begun = end.offset(self._log.partition) is not None
        return all_read(end, self._tables) if is_bare and is_begun else end

    def _raise_error(self) -> None:
        """Raise an error that occurred since the last call, if any."""

    def _latest(self, start: Position, limit: ReadLimit) -> Position:
        self._raise_error()
        place = start.offset(self._log.partition)
        require_own(start, self._log.partition)
        moved = place and self._log.taken_over(self._asking(), place)
        if moved:
            start, place = self._moved_over(start, moved), moved
            if limit.until is not None or limit.rows is not None:
                return start
        known = self._known(start)
        if known != start:
            return known
        is_first = place is None
        place = place or self._first()
        if limit.until is None and limit.rows is None:
            return self._everything(start, place)
        if is_first and not (self._log.keeps_start or INITIAL in place):
            # The start must be stored before anything is read; a snapshot batch stores it too.
            return start.moved(self._log.partition, place)
        waiting = self._unread(start, limit.until)
        # A busy log is rarely read to its end, so tables and the log take turns.
        is_turn = INITIAL in place or not self._was_table or self._is_caught_up(place)
        self._was_table = bool(waiting) and is_turn
        if waiting and is_turn:
            end = self._snapshot_end(start, place, limit, waiting)
            if end != start:
                return end
        if waiting is None and INITIAL in place:
            return start  # no changes of the log before all tables are read
        if waiting or INITIAL in place or asked(start) is None:
            return self._log_end(start, place, limit)
        self._was_replay = not self._was_replay
        turns = [self._log_end, self._replay_end]
        ends = (
            turn(start, place, limit) for turn in (turns[::-1] if self._was_replay else turns)
        )
        return next((end for end in ends if end != start), start)

    def _known(self, start: Position) -> Position:
        """Check the tables; return a position without outdated table offsets."""
        try:
            self._look(start)
        except DataLostError:
            check = partial(self._log.check, self._asking(), list(self._tables.values()))
            known = without_lost(start, check)
            if known == start:
                raise
            return known
        # A deselected table that is selected again is read again, as its changes were missed.
        gone = [p for p, _ in start.items() if p.get("table", "") not in {"", *self._tables}]
        end = reduce(Position.without, gone, start)
        is_read = self.settings.snapshot_mode is not SnapshotMode.NO_DATA
        if is_read and self._unknown and not gone:
            # Re-created, or removed by others for a while: the log lacks some of their changes.
            log.warning("tables are read again", tables=self._unknown)
            self._writers.forget(self._unknown)
            for name in self._unknown:
                end = end.moved(partition_of(name), {"round": 0})
        return end

    def _replay_end(self, start: Position, place: Offset, limit: ReadLimit) -> Position:
        return self._replays.end(
            start, place, limit, self._asking, stopping=self.context.stopping
        )

    def _moved_over(self, start: Position, place: Offset) -> Position:
        """Return the position in the log of a server after a failover."""
        log.warning("failover to another server; its log is followed", place=dict(place))
        self._stop_reading()
        self._drop_snapshot()
        return moved_over(start, self._log.partition, place)

    def _first(self, *, restart: bool = False) -> Offset:
        """Return the start in the log for a task without a position."""
        if self._begun is None:
            tables = list(self._tables.values())
            if self.settings.window is not None:
                place = self._window.begin(self._asking(), tables)
            elif self.settings.snapshot_mode.follows:
                place = self._log.begin(self._asking(), tables, restart=restart)
            else:
                place = self._log.now(self._asking())  # the log need not be retained
            self._writers.begin(self._tables)
            is_read = self.settings.snapshot_mode is not SnapshotMode.NO_DATA
            self._begun = {**place, INITIAL: True} if is_read else place
        return self._begun

    def _everything(self, start: Position, place: Offset) -> Position:
        """Return the end of all current data: all tables read, and changes up to now."""
        self._drop_snapshot()  # an earlier snapshot may lack changes that the log has
        end, now = start, self._goal()
        if (
            self.settings.snapshot_mode.follows
            and self._log.order(now) > self._log.order(place)
            and self._reading(place, now).has_changes(now, self.context.stopping)
        ):
            end = end.moved(self._log.partition, followed(self._log.moved(place, now)))
        for partition in [p for p, _ in start.items() if SINCE in p]:
            end = end.without(partition)
        return (
            end if self.settings.snapshot_mode is SnapshotMode.NO_DATA else self._all_read(end)
        )

    def _goal(self) -> Offset:
        """Return the end of the log for this task: now, or the end of its window."""
        now, upto = self._log.now(self._asking()), self._window.end(self._asking)
        return now if upto is None else min(now, upto, key=self._log.order)

    def _all_read(self, start: Position) -> Position:
        return all_read(start, (name for name in self._tables if not self._is_paused(name)))

    def _look(self, start: Position) -> None:
        """Check periodically which tables exist, and whether the log has their changes."""
        due = self._looked + self.settings.table_poll_interval_ms / 1000
        if time.monotonic() < due and self._tables:
            return
        session, place = self._asking(), start.offset(self._log.partition)
        found = self._followed(session, start)
        tables = {str(table.name): table for table in found}
        added = [name for name in tables if name not in self._tables]
        self._tables = tables
        if not self.settings.snapshot_mode.follows:
            self._looked = time.monotonic()
            return
        left_out = [str(each) for each in self._log.left_out(session, found)]
        begun = {n for n in tables if begun_offset(start.offset(partition_of(n))) is not None}
        self._unknown = [name for name in left_out if name in begun]
        if self._unknown and self.settings.snapshot_mode is not SnapshotMode.NO_DATA:
            return  # first drop their offsets, so that they are read again
        if place is not None:
            for each in (place, *(o[AT] for p, o in start.items() if SINCE in p and AT in o)):
                self._log.check(session, found, each)
            for until in [offset[UNTIL] for _, offset in start.items() if UNTIL in offset]:
                self._log.check_seen(session, until)
            if self._looked > 0 and added:
                log.info("new tables are followed", tables=added)
            if self._unknown:
                log.warning(
                    "the log lacked changes of tables for a while", tables=self._unknown
                )
            self._writers.wait(name for name in tables if name not in begun)
        self._looked = time.monotonic()

    def _followed(self, session: Session, start: Position) -> list[Table]:
        found, passed = followed_tables(
            self._log,
            self._selection,
            session,
            follows=self.settings.snapshot_mode.follows,
            known=lambda name: start.offset(partition_of(name)) is not None,
        )
        for name in passed.keys() - self._passed:
            why, fix = passed[name].problem, passed[name].fix
            log.warning("table is skipped", table=str(name), problem=why, fix=fix)
        self._passed = frozenset(passed)
        return found

    def _writers_of(self, name: str) -> frozenset[str]:
        return self._database.writers(self._asking(), self._tables[name].name)

    def _unread(
        self, start: Position, until: Position | None
    ) -> list[Mapping[str, str]] | None:
        """Return the partitions of the tables and requested rows that can be read now.

        Paused tables are treated as if they were created later. None if there are tables to
        read, but earlier transactions still write all of them.
        """
        if self.settings.snapshot_mode is SnapshotMode.NO_DATA:
            tables = []
        else:
            tables = [partition_of(name) for name in self._tables]
        asked = [p for p, _ in start.items() if WHERE in p and p["table"] in self._tables]
        found = [
            partition
            for partition in [*tables, *asked]
            if not (is_read(start.offset(partition)) or self._is_paused(partition["table"]))
            and (
                until is None or until.offset(partition) not in (None, start.offset(partition))
            )
        ]
        free = [each for each in found if not self._writers.may_write(each["table"])]
        while until is not None and found and not free and not self.context.stopping():
            time.sleep(_LOOK_SECONDS)
            free = [each for each in found if not self._writers.may_write(each["table"])]
        return free or ([] if not found else None)

    def _is_paused(self, name: str) -> bool:
        return self._paused is not None and self._paused.takes(self._tables[name].name)

    def _is_caught_up(self, place: Offset) -> bool:
        if not self.settings.snapshot_mode.follows:
            return True
        process = self._reading(place, None)
        process.raise_error()
        return not process.entries()

    def _snapshot_end(
        self,
        start: Position,
        place: Offset,
        limit: ReadLimit,
        waiting: Sequence[Mapping[str, str]],
    ) -> Position:
        if INITIAL not in place or self._snapshot is None:
            self._take_snapshot(place)
        snapshot = self._snapshot
        assert snapshot is not None
        end, session = start.moved(self._log.partition, place), self._asking()
        left = min(self.settings.snapshot_batch_rows, limit.rows or 1 << 62)
        for partition in waiting:
            bound = None if limit.until is None else limit.until.offset(partition)
            if bound is not None and "after" in bound:
                end = end.moved(partition, bound)
                continue
            offset = begun_offset(start.offset(partition))
            rows = Rows.of(self._database, table := self._tables[partition["table"]])
            try:
                if WHERE in partition:
                    try_condition(self._database, session, table.name, partition[WHERE])
                found = cursor_of(rows, partition).latest(session, rows, offset, most=left)
            except RetriableError:
                raise
            except HeadraceError:
                self._looked = -float("inf")
                raise
            if found is None:
                continue
            end = end.moved(partition, {**found[0], **self._beside(start, partition)})
            left -= found[1]
            if left <= 0:
                break
        return end

    def _beside(self, start: Position, partition: Mapping[str, str]) -> Offset:
        """Return the additional fields of the offset of a table that is being read."""
        snapshot, known = self._snapshot, start.offset(partition)
        assert snapshot is not None
        if known is None:
            # Skip the log changes that the first rows contain; later rows contain them too.
            return {SEEN: snapshot.seen, UNTIL: dict(snapshot.upto)}
        if known.get("round") == 0:
            # The log must still delete rows in the target, even those missing in the snapshot.
            return {UNTIL: dict(snapshot.upto)}
        return {key: known[key] for key in (SEEN, UNTIL) if key in known}

    def _take_snapshot(self, place: Offset) -> None:
        self._drop_snapshot()
        self._snapshot = self._holding.enter_context(self._log.snapshot(place))

    def _drop_snapshot(self) -> None:
        self._holding.close()
        self._snapshot = None

    def _log_end(self, start: Position, place: Offset, limit: ReadLimit) -> Position:
        order, until = self._log.order, self._window.end(self._asking)
        is_known = start.offset(self._log.partition) is not None
        rest = settled(start, self._log, place) if is_known else start
        if limit.until is not None:
            until = limit.until.offset(self._log.partition)
            if until is not None and INITIAL in until:
                return start  # the limit is within the snapshot
            if until is None:
                return rest
        if until is not None and order(place) >= order(until):
            return rest
        if not self.settings.snapshot_mode.follows:
            return rest
        process = self._reading(place, until)
        seconds = _NEWS_SECONDS if process.is_ready else _CONNECT_SECONDS
        while True:
            self._await(process, until or self._log.now(self._asking()), seconds)
            end, reached = taken(process.entries(), limit.rows, until, order), process.place
            if end is None and order(reached) > order(place):
                end = self._idle_place(place, reached, until)
            if end is not None:
                return settled(start, self._log, self._log.moved(place, end))
            if until is None or self.context.stopping():
                return rest

    def _await(self, process: LogProcess, goal: Offset, seconds: float) -> None:
        """Wait for changes, or until it is certain that there are none before a place.

        If the log is far ahead, for example after a pause, wait a little to collect more.
        """
        began, order = time.monotonic(), self._log.order
        while order(process.place) < order(goal) and not self.context.stopping():
            entries, waited = process.entries(), time.monotonic() - began
            behind = self._log.between_bytes(process.place, goal) or 0
            rows = sum(entry.rows for entry in entries)
            if entries and (behind < _FAR_BYTES or rows >= _MANY_ROWS):
                return
            if waited >= (_GATHER_SECONDS if entries else seconds):
                return
            process.wait(_LOOK_SECONDS)

    def _idle_place(
        self, place: Offset, reached: Offset, until: Offset | None
    ) -> Offset | None:
        """Return the place to advance to while there are no changes of the tables."""
        if until is not None:
            return until if self._log.order(reached) >= self._log.order(until) else None
        now = time.monotonic()
        since = now - max(self._moved, self._started_reading)
        far = (self._log.between_bytes(place, reached) or 0) >= _IDLE_BYTES
        return reached if far or since * 1000 >= self.settings.heartbeat_interval_ms else None

    # --- the log --------------------------------------------------------------------

    def _reading(self, place: Offset, cut: Offset | None) -> LogProcess:
        if self._process is None:
            self._process = LogProcess(
                self._log.reader(self._selection.takes),
                self._log.order,
                self.context.scratch / "log",
                self.settings.max_queue_size_in_bytes,
            )
            self._process.confirm(self._confirmed)
            self._started_reading = time.monotonic()
        self._process.follow(place, cut)
        return self._process

    def _stop_reading(self) -> None:
        self._replays.stop()
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    # --- reading --------------------------------------------------------------------

    @override
    def streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        try:
            return self._streams(spark, start, end)
        except RetriableError:
            self._expect_another_server()
            raise
        finally:
            self._rest()

    def _streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        self._raise_error()
        partition = self._log.partition
        before, place = start.offset(partition), end.offset(partition)
        is_anew = before and place and INITIAL in place and place != before
        is_other = before and place and not self._log.goes_on(before, place)
        if is_anew or is_other or has_given_up(start, end, partition):
            self._look(end)  # nothing to read: the log does not continue from the start
            return []
        self._look(start)
        if place is not None:
            self._log.check_end(self._asking(), place)
        tables = [each for each in end.changed(start) if set(each) <= {"table", WHERE}]
        replays = [each for each, _ in start.items() if SINCE in each]
        check_range(start, end, [partition, *tables, *replays])
        before = before or (None if place is None else self._first())
        parallel = spark.sparkContext.defaultParallelism
        batch = BatchStreams(self._log, self.settings, parallel, type(self).__qualname__)
        for table, runs in self._runs(start, end, before).items():
            if table in self._passed:
                continue  # a publication for all tables still includes it
            offset = start.offset(partition_of(table))
            if offset is None and self.settings.snapshot_mode is not SnapshotMode.NO_DATA:
                continue  # the table is not read yet; its snapshot will include these changes
            batch.add_changes(table, runs, (offset or {}).get(SEEN))
        for each in tables:
            if self.settings.snapshot_mode is SnapshotMode.NO_DATA and WHERE not in each:
                continue
            if has_rows_between(start.offset(each), end.offset(each)):
                self._add_rows(batch, each, start, end)
        return batch.streams(self._tables, partial(self._continues, start))

    def _add_rows(
        self, batch: BatchStreams, partition: Mapping[str, str], start: Position, end: Position
    ) -> None:
        name = partition["table"]
        if name not in self._tables:
            raise SourceError(
                problem=f"The batch reads {name}, which no longer exists or is not selected.",
                fix="Restore or select the table until the batch is finished.",
                field="table.include.list",
            )
        # If the snapshot was from before a restart or is lost, read newer rows.
        if self._snapshot is None or self._snapshot.has_lost(self._tables[name].name):
            self._take_snapshot(end.offset(self._log.partition) or {})
        assert self._snapshot is not None
        batch.add_rows(
            self._asking(),
            self._tables[name],
            partition,
            self._snapshot,
            start=start.offset(partition),
            end=end.offset(partition) or {},
        )

    def _runs(
        self, start: Position, end: Position, before: Offset | None
    ) -> Mapping[TableName, Sequence[SpooledRun]]:
        """Return the changes of tables between two positions."""
        order, place = self._log.order, end.offset(self._log.partition)
        found: dict[TableName, list[SpooledRun]] = {}
        begun = [(p, offset) for p, offset in start.items() if AT in offset]
        for partition, offset in begun:
            after = end.offset(partition)
            goal = place if after is None else after[AT]
            if after != offset and goal is not None:
                process = self._replays.follow(partition, offset, goal)
                found = by_table(process.reached(goal))
        if before is not None and place is not None and order(place) > order(before):
            main = by_table(self._reading(before, place).reached(place))
            replayed = {table for _, offset in begun for table in offset[TABLES]}
            found |= {t: runs for t, runs in main.items() if str(t) not in replayed}
        return found

    def _continues(self, start: Position, table: TableName) -> bool:
        """Return whether earlier batches contain data of a table."""
        if self.settings.snapshot_mode is SnapshotMode.NO_DATA:
            return start.offset(self._log.partition) is not None
        return start.offset(partition_of(table)) is not None

    # --- afterwards -----------------------------------------------------------------

    @override
    def acknowledge(self, position: Position) -> None:
        self._replays.acknowledge(position)
        place = position.offset(self._log.partition)
        if place is None:
            return
        self._confirmed = place
        self._moved = time.monotonic()
        if self._process is not None:
            self._process.confirm(place)
        if INITIAL not in place or not self._tables:
            self._drop_snapshot()

    @override
    def lag(self, start: Position, until: Position | None = None) -> Lag:
        place = start.offset(self._log.partition)
        if place is None or not self.settings.snapshot_mode.follows:
            return Lag()
        end = None if until is None else until.offset(self._log.partition)
        if end is None:
            end = self._goal()
            self._rest()
        return Lag(size_bytes=self._log.between_bytes(place, end))

    @override
    def ended(self, position: Position) -> bool:
        place = position.offset(self._log.partition)
        if place is not None and (upto := self._window.end(self._asking)) is not None:
            return self._log.order(place) >= self._log.order(upto)
        if self.settings.snapshot_mode.follows:
            return False
        return all(is_read(position.offset(partition_of(name))) for name in self._tables)
