"""The binary log of a MySQL or MariaDB server: places in it, snapshots there, and failovers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, DataLostError, HeadraceError, RetriableError, Schema
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.changes.database_log import RESNAPSHOT, DatabaseLog, Snapshot
from headrace_plugins.changes.log import OffsetField, check_fields
from headrace_plugins.connectors.mysql import binlog_events as events
from headrace_plugins.connectors.mysql.binlog_dump import Dump, GtidSet, is_gtid_set
from headrace_plugins.connectors.mysql.binlog_reader import BinlogReader
from headrace_plugins.connectors.mysql.binlog_runs import BinlogColumns
from headrace_plugins.connectors.mysql.binlog_settings import (
    committed_place,
    current_place,
    examine_binlog,
    gtids_at,
    in_log,
    is_mariadb,
    oldest_place,
    server_of,
)
from headrace_plugins.databases.mysql import Mysql

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace_plugins.changes.log import LogReader, Offset
    from headrace_plugins.changes.parts import Keeps, Typed
    from headrace_plugins.databases.catalog import Column, Table, TableName
    from headrace_plugins.databases.database import Rejected, Session


_LACKING_SECONDS = 300.0
"""A server that lacks transactions is taken for a lagging replica for this long."""
_EXAMPLE = '{"file": "binlog.000001", "pos": 4}'
_OTHERS = (
    OffsetField.mark("initial"),
    OffsetField.text("server"),
    OffsetField.integer("failovers", 0),
)
_FILE = OffsetField(
    "file",
    "the name of a binary log, such as binlog.000001",
    lambda v: isinstance(v, str) and bool(re.fullmatch(r"[^/\0]*\.\d+", v)),
    required=True,
)
_NO_FILE = OffsetField(
    "file", "the name of a binary log, or empty beside gtid", lambda v: v == "", required=True
)
_GTID = OffsetField("gtid", "a GTID set, as the server writes it", is_gtid_set)
_PLACE = (_FILE, OffsetField.integer("pos", 4, required=True), _GTID, *_OTHERS)
_BY_GTIDS = (
    _NO_FILE,
    OffsetField.integer("pos", 0, required=True),
    replace(_GTID, required=True),
    *_OTHERS,
)
_RESNAPSHOT = f"Keep binary logs for longer. {RESNAPSHOT}"


class FollowedMysql(Mysql):
    """A database that is only read and followed."""

    @property
    @override
    def grants(self) -> str:
        user, database = self.address.user or "user", self.quote(self.address.database)
        # MariaDB accepts REPLICATION CLIENT as another name for BINLOG MONITOR.
        return (
            f"GRANT SELECT ON {database}.* TO '{user}'; "
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}';"
        )

    @override
    def examine_writing(self, found: Mapping[str, Any]) -> Iterator[Finding]:
        yield from ()


@dataclass
class BinaryLog(DatabaseLog):
    """The binary log of a server.

    Args:
        name: The server's name in ``source``.
        server_id: The server id of the reader; None for a random number.
        heartbeat: The interval of the server's heartbeats.
        nulls: Whether values that the schema cannot represent become null.
    """

    database: Mysql
    name: str
    server_id: int | None
    heartbeat: timedelta
    nulls: bool = False
    _failovers: int = field(default=0, init=False)
    """The number of failovers before the current place; the server does not know it."""
    _lacking_since: float | None = field(default=None, init=False)
    """The time since which this server lacks transactions that were read from another one."""
    _is_compared: bool = field(default=False, init=False)

    @property
    @override
    def partition(self) -> Mapping[str, str]:
        return {"server": self.name}

    @override
    def order(self, place: Offset) -> tuple[int, ...]:
        return (int(place.get("failovers", 0)), *in_log(place))

    @override
    def moved(self, place: Offset, end: Offset) -> Offset:
        # Drop the old GTIDs: if the end has none, they would be stale.
        return {**{key: value for key, value in place.items() if key != "gtid"}, **end}

    @override
    def between_bytes(self, start: Offset, end: Offset) -> int | None:
        if not self.goes_on(start, end) or start["file"] != end["file"]:
            return None
        return max(0, int(end["pos"]) - int(start["pos"]))

    @override
    def check_place(self, place: Offset) -> None:
        fields = _BY_GTIDS if place.get("file") == "" else _PLACE
        check_fields("place in a binary log", place, fields, _EXAMPLE)

    # --- the log --------------------------------------------------------------------

    @override
    def require(self, session: Session, tables: Sequence[Table]) -> None:
        for finding in examine_binlog(session):
            if finding.verdict is Verdict.FAILED:
                raise ConfigError(
                    problem=f"The log cannot be followed: {finding.found}.",
                    fix=finding.fix,
                    field="connection.url",
                )
        for table in tables:
            if table.untransactional:
                raise ConfigError(
                    problem=f"{table.name} uses the engine {table.untransactional}, which has "
                    "no transactions: its rows and the log may differ.",
                    fix=f"ALTER TABLE {self.database.path(table.name)} ENGINE=InnoDB; or "
                    "exclude the table by table.exclude.list.",
                    field="table.exclude.list",
                )

    @override
    def begin(
        self, session: Session, tables: Sequence[Table], *, restart: bool = False
    ) -> Offset:
        self.require(session, tables)
        return committed_place(session)

    @override
    def taken_over(self, session: Session, place: Offset) -> Offset | None:
        self._failovers = int(place.get("failovers", 0))
        if is_of(session, place):
            # A server of another site may have the same server_id, so compare the log once.
            self._is_compared = self._is_compared or is_same_log(session, place)
            if self._is_compared:
                return None
        found = self._found(session, place)
        self._failovers, self._is_compared = found["failovers"], True
        return found

    def _found(self, session: Session, place: Offset) -> Offset:
        """Return the place in this server's log that corresponds to one of another server.

        If this server lacks transactions, raises RetriableError at first, as it may be a
        replica that catches up.
        """
        title = self.database.address.title
        try:
            require_read(session, place, title)
        except DataLostError as error:
            now = time.monotonic()
            if self._lacking_since is None:
                self._lacking_since = now
            if now - self._lacking_since < _LACKING_SECONDS:
                raise RetriableError(problem=error.problem, fix=error.fix) from error
            raise
        self._lacking_since = None
        return taken_over(session, place, title)

    @override
    def check_end(self, session: Session, place: Offset) -> None:
        if not is_of(session, place):
            self._found(session, place)

    @override
    def goes_on(self, start: Offset, end: Offset) -> bool:
        return int(start.get("failovers", 0)) == int(end.get("failovers", 0))

    @override
    def check(self, session: Session, tables: Sequence[Table], place: Offset) -> None:
        self.require(session, tables)
        title = self.database.address.title
        if not is_of(session, place):
            self._found(session, place)  # a batch that was started on the previous server
            return
        if not place["file"]:
            return
        oldest, newest = oldest_place(session), current_place(session)
        if in_log(place) < in_log(oldest):
            raise DataLostError(
                problem=f"{title} has purged its log up to {oldest['file']}, but it was read "
                f"only up to {place['file']}.",
                fix=_RESNAPSHOT,
            )
        if in_log(place) > in_log(newest):
            raise DataLostError(
                problem=f"The log of {title} ends at {newest['file']}:{newest['pos']}, but was "
                f"read up to {place['file']}:{place['pos']}: it is the log of another server, "
                "or was reset.",
                fix=_RESNAPSHOT,
            )

    @override
    def now(self, session: Session) -> Offset:
        place = current_place(session)
        return {**place, "failovers": self._failovers} if self._failovers else place

    @override
    def oldest(self, session: Session, tables: Sequence[Table]) -> Offset:
        self.require(session, tables)
        return oldest_place(session)

    @override
    def since(self, session: Session, time: datetime) -> Offset:
        seconds = int(session.value("SELECT unix_timestamp()"))
        now, files = self.now(session), session.rows("SHOW BINARY LOGS")
        dump = Dump(self.database, None, self.heartbeat)
        try:
            found = place_since(dump, [str(file) for file, *_ in files], time)
        finally:
            dump.close()
        if found is None and seconds < int(time.timestamp()):
            raise RetriableError(
                problem=f"{time.isoformat()} is in the future by the clock of "
                f"{self.database.address.title}.",
                fix="Wait, or correct the server's clock.",
            )
        if found is None:
            return now
        return {**{key: value for key, value in now.items() if key != "gtid"}, **found}

    @override
    def reader(
        self, follows: Callable[[TableName], bool], *, is_second: bool = False
    ) -> Callable[[], LogReader]:
        return partial(
            BinlogReader,
            self.database,
            partial(_of_database, self.database.default_schema, follows),
            heartbeat=self.heartbeat,
            # The server disconnects an older reader with the same id.
            server_id=None if is_second else self.server_id,
        )

    # --- snapshots ------------------------------------------------------------------

    @override
    @contextmanager
    def snapshot(self, place: Offset) -> Iterator[Snapshot]:
        # Connections cannot share a snapshot: each reads the rows committed when it starts,
        # which is later than this place. Changes in the log before that are repeated.
        title = self.database.address.title
        with self.database.session() as session:
            if not is_of(session, place):
                raise RetriableError(
                    problem=f"{title} is another server than the one whose log is followed, "
                    f"{place['server']}."
                )
            await_commits(session, place, title)
            upto = self.now(session)
        details: dict[str, int | str | None] = {
            "file": str(upto["file"]),
            "pos": int(upto["pos"]),
        }
        yield Snapshot(None, None, upto, time.time_ns() // 1000, details, lambda _: False)

    @override
    def keeps(self, seen: Any) -> Keeps | None:
        return None

    @property
    @override
    def typed(self) -> Typed:
        return partial(_typed, self.nulls)

    @override
    def facts(self, table: TableName) -> Mapping[str, str]:
        facts = {"version": "1.0", "connector": "mysql", "name": self.name}
        return {**facts, "db": table.schema, "table": table.name}

    @property
    @override
    def details(self) -> Mapping[str, Schema]:
        return {
            "server_id": Schema.int64(),
            "gtid": Schema.string(),
            "file": Schema.string(),
            "pos": Schema.int64(),
            "row": Schema.int32(),
            "thread": Schema.int64(),
        }


def _of_database(database: str, follows: Callable[[TableName], bool], table: TableName) -> bool:
    """Return whether a table is in the followed database and is followed."""
    return table.schema == database and follows(table)


def _typed(
    nulls: bool,  # noqa: FBT001 - the log's
    columns: tuple[Column, ...],
    rows: pa.RecordBatch,
) -> tuple[pa.RecordBatch, Rejected]:
    return BinlogColumns(columns, nulls).parse_changes(rows)


_LOOK_SECONDS = 1.0


def place_since(dump: Dump, files: Sequence[str], since: datetime) -> Offset | None:
    """Return the start of the first transaction with this time or a later one.

    Everything after it in the log is included, regardless of its times: those of replicas are
    not in order. Returns None if there is no such transaction. Raises ConfigError if the log
    starts after the time.

    Args:
        dump: The connection; the caller closes it.
        files: The server's log files, the oldest first.
        since: A time, truncated to whole seconds.
    """
    seconds, number = int(since.timestamp()), len(files)
    began, headers = seconds, iter(list[tuple[int, int, int, int]]())
    while number and began >= seconds:  # the previous file may have events of the same second
        number -= 1
        headers = _headers(dump, files[number])
        began = next(ts for ts, kind, *_ in headers if kind == events.FORMAT_DESCRIPTION)
    if began > seconds:
        raise ConfigError(
            problem=f"The binary log begins at {datetime.fromtimestamp(began, UTC)}, with "
            f"{files[0]}.",
            fix="Set a later time, or read the current rows of the tables: for a connector by "
            "headrace connector tables resync NAME TABLE, for a job with the source jdbc.",
            field="offsets",
        )
    for ts, kind, size, pos in headers:
        if kind == events.FORMAT_DESCRIPTION:
            if number + 1 == len(files):
                raise RetriableError(problem="A file was added to the binary log meanwhile.")
            return {"file": files[number + 1], "pos": 4}
        if kind in events.GTIDS and ts >= seconds:
            return {"file": files[number], "pos": pos - size}
        if kind in {events.HEARTBEAT, events.HEARTBEAT_V2}:
            break  # heartbeats are sent only at the end of the log
    return None


def _headers(dump: Dump, file: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield time, type, length and end of the events of a file and of later files."""
    dump.open()
    dump.request(file, 4, None)
    place = 0
    while True:
        found = dump.packet(place)
        if found is None:
            del dump.data[:place]
            place = 0
            dump.receive(_LOOK_SECONDS)
            continue
        ts, kind, _, size, pos, _ = events.HEADER.unpack_from(dump.data, found[0])
        place = found[1]
        yield ts, kind, size, pos


_SHOWN_SECONDS, _COMMIT_LOOK_SECONDS = 10.0, 0.01


def await_commits(session: Session, place: Offset, title: str) -> None:
    """Wait until all transactions in the log before a place are visible in tables.

    Without GTIDs MySQL does not report the transactions that it is committing, so there is
    nothing to wait for. Prepared XA transactions are waited for too: their rows may be before
    the place, while their commit is not yet in the log. Raises RetriableError if it takes too
    long.
    """
    by, mariadb = time.monotonic() + _SHOWN_SECONDS, is_mariadb(session)
    late = _unshown(session, mariadb=mariadb)
    while late or (mariadb and not _has_reached(committed_place(session), place)):
        if time.monotonic() > by:
            raise RetriableError(
                problem=f"{title} has transactions in its binary log that are not yet visible "
                "in its tables.",
                fix="Check whether the server waits for a replica's acknowledgement, or "
                "whether XA RECOVER shows an unfinished transaction.",
            )
        time.sleep(_COMMIT_LOOK_SECONDS)
        if late:
            late &= _unshown(session, mariadb=mariadb)


def _has_reached(committed: Offset, place: Offset) -> bool:
    if place["file"]:
        return in_log(committed) >= in_log(place)
    return GtidSet(committed.get("gtid", "")).covers(GtidSet(place["gtid"]))


def _unshown(session: Session, *, mariadb: bool) -> set[tuple[str, str]]:
    return _prepared(session) if mariadb else _owned(session) | _prepared(session)


def _prepared(session: Session) -> set[tuple[str, str]]:
    """Return the prepared XA transactions; empty if the user may not list them.

    MySQL requires XA_RECOVER_ADMIN.
    """
    try:
        return {("XA", str(xid)) for *_, xid in session.rows("XA RECOVER")}
    except HeadraceError:
        return set()


def _owned(session: Session) -> set[tuple[str, str]]:
    """Return the GTIDs of transactions that are being committed.

    MySQL lists them as a GTID set, with the thread after each: `uuid:5#31:6#32`. A transaction
    owns its GTID from before it is in the log until it is visible in tables.
    """
    found, text = set[tuple[str, str]](), str(session.value("SELECT @@global.gtid_owned") or "")
    for part in re.sub(r"\s", "", text).split(","):
        source, *owned = part.split(":")
        name = source
        for each in owned:
            if each[:1].isdigit():
                found.add((name, each))
            else:
                name = f"{source}:{each}"  # a tag
    return found


def is_of(session: Session, place: Offset) -> bool:
    """Return whether a place is in this server's log, according to the place's ``server``.

    Places that a user set have no server and are accepted.
    """
    return place.get("server") in {None, server_of(session)}


def is_same_log(session: Session, place: Offset) -> bool:
    """Return whether MariaDB's log has the place's GTIDs at that place; True if unknown.

    MariaDB's servers are identified by numbers only, and two sites may use the same number.
    """
    if not {"server", "gtid", "file"} <= set(place) or not place["file"]:
        return True
    found = gtids_at(session, place["file"], place["pos"])
    return found is None or set(found.split(",")) == set(place["gtid"].split(","))


def require_read(session: Session, place: Offset, title: str) -> None:
    """Raise DataLostError if the server lacks transactions that were read from another server.

    It may be a replica that lags behind.
    """
    server, other = server_of(session), place.get("server")
    read = GtidSet(place.get("gtid", "")).filled(str(other))
    executed, _ = _gtids_of(session)
    if not executed.covers(read):
        raise DataLostError(
            problem=f"{title} is the server {server}, which lacks transactions that were read "
            f"from {other}: it has {str(executed) or 'none'}, but {read} was read.",
            fix="If it is a replica that lags, let it catch up, and restart the task. If "
            f"they were lost with {other}, only the target still has them. {RESNAPSHOT}",
        )


def taken_over(session: Session, place: Offset, title: str) -> Offset:
    """Return the place in this server's log that corresponds to a place of another server.

    It has no file yet: the reader requests the log after the GTIDs.

    Raises DataLostError if the place has no GTIDs, or the server has purged transactions that
    were not read.
    """
    server, other = server_of(session), place.get("server")
    if "gtid" not in place:
        raise DataLostError(
            problem=f"{title} is the server {server}, but the position is in the log of "
            f"{other}, and has no GTIDs to find it here.",
            fix=f"Connect to the previous server. {RESNAPSHOT} On MySQL, set gtid_mode=ON for "
            "later failovers.",
        )
    read = GtidSet(place["gtid"]).filled(str(other))
    _, purged = _gtids_of(session)
    if not read.covers(purged):
        raise DataLostError(
            problem=f"{title} is the server {server}, which has purged transactions that were "
            f"not read from {other}: it has purged {purged}, but only {read} was read.",
            fix=f"Keep binary logs for longer. {RESNAPSHOT}",
        )
    count = int(place.get("failovers", 0)) + 1
    kept = {key: place[key] for key in ("initial",) if key in place}
    return {
        **kept,
        "file": "",
        "pos": 0,
        "gtid": str(read),
        "server": server,
        "failovers": count,
    }


def _gtids_of(session: Session) -> tuple[GtidSet, GtidSet]:
    """Return the GTIDs that a server has executed, and those purged, empty if unknown."""
    if is_mariadb(session):
        # MariaDB reports purged transactions only when the log is requested.
        return GtidSet(str(session.value("SELECT @@global.gtid_binlog_pos") or "")), GtidSet("")
    [[executed, purged]] = session.rows("SELECT @@global.gtid_executed, @@global.gtid_purged")
    return GtidSet(executed), GtidSet(purged)
