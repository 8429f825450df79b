"""Where a place in one server's binary log lies in that of the server that has taken over."""

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
    """Return whether a place is one in this server's log, as far as the server's name tells.

    One of before places had a server is.
    """
    return place.get("server") in {None, server_of(session)}


def is_same_log(session: Session, place: Offset) -> bool:
    """Return whether the log has the place's GTIDs there, where MariaDB can tell.

    Its servers have numbers only, which those of two sites may share.
    """
    if not {"server", "gtid", "file"} <= set(place) or not place["file"]:
        return True
    found = gtids_at(session, place["file"], place["pos"])
    return found is None or set(found.split(",")) == set(place["gtid"].split(","))


def require_read(session: Session, place: Offset, title: str) -> None:
    """Raise DataLostError for a server that lacks what was read of another's log up to a place.

    It may be a replica that is behind.
    """
    server, other = server_of(session), place.get("server")
    read = GtidSet(place.get("gtid", "")).filled(str(other))
    executed, _ = _gtids_of(session)
    if not executed.covers(read):
        raise DataLostError(
            problem=f"{title} is the server {server}, which lacks transactions that were read "
            f"from {other}: it has {str(executed) or 'none'}, and {read} was read.",
            fix="Let it catch up if it is a replica that is behind, and restart the task. If "
            f"they were lost with {other}, a target has what no server has. {RESNAPSHOT}",
        )


def taken_over(session: Session, place: Offset, title: str) -> Offset:
    """Return a place in the log of this server, behind the transactions of one in another's.

    It has no file yet: the server is asked for what comes behind the GTIDs.

    Raises DataLostError: there are no GTIDs to find it by, or the server has purged
    transactions that were not read.
    """
    server, other = server_of(session), place.get("server")
    if "gtid" not in place:
        raise DataLostError(
            problem=f"{title} is the server {server}, and the position is one in the log of "
            f"{other}, without GTIDs by which it could be found here.",
            fix=f"Connect to the server of before. {RESNAPSHOT} Set gtid_mode=ON on MySQL "
            "for the next time.",
        )
    read = GtidSet(place["gtid"]).filled(str(other))
    _, purged = _gtids_of(session)
    if not read.covers(purged):
        raise DataLostError(
            problem=f"{title} is the server {server}, which has purged transactions that were "
            f"not read from {other}: it has purged {purged}, and {read} was read.",
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
    """Return what a server has in its log or had, and what of it is purged if that is known."""
    if is_mariadb(session):
        # What is purged the server itself says when it is asked for what follows.
        return GtidSet(str(session.value("SELECT @@global.gtid_binlog_pos") or "")), GtidSet("")
    [[executed, purged]] = session.rows("SELECT @@global.gtid_executed, @@global.gtid_purged")
    return GtidSet(executed), GtidSet(purged)
