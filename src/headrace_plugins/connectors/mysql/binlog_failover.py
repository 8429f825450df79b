"""Translates a place in a server's binary log to that of another server after a failover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import DataLostError
from headrace_plugins.changes.database_log import RESNAPSHOT
from headrace_plugins.connectors.mysql.binlog_gtids import GtidSet
from headrace_plugins.connectors.mysql.binlog_settings import gtids_at, is_mariadb, server_of

if TYPE_CHECKING:
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.database import Session


def is_of(session: Session, place: Offset) -> bool:
    """Return whether a place is in this server's log, according to the place's ``server``.

    Places of earlier versions have no server and are accepted.
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
