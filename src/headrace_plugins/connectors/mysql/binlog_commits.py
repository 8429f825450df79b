"""What a server shows of its binary log, which has a transaction before its tables do.

Between the two lie milliseconds, or as long as a semi-synchronous replica lets it wait.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from headrace.sdk import HeadraceError, RetriableError
from headrace_plugins.connectors.mysql.binlog_gtids import GtidSet
from headrace_plugins.connectors.mysql.binlog_settings import (
    current_place,
    in_log,
    is_mariadb,
    snapshot_place,
)

if TYPE_CHECKING:
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.database import Session

_SHOWN_SECONDS, _LOOK_SECONDS = 10.0, 0.01


def committed_place(session: Session) -> Offset:
    """Return a place in the log: all before it can be read from tables, on MariaDB.

    MySQL tells the end of the log only; there `await_commits` waits for what is before it.
    """
    if not is_mariadb(session):
        return current_place(session)
    try:
        return snapshot_place(session)
    finally:
        session.rollback()


def await_commits(session: Session, place: Offset, title: str) -> None:
    """Wait until tables show all that the log has before a place.

    Without GTIDs MySQL does not tell what it is about to commit, so there is nothing to wait
    for. Transactions that XA has prepared are waited for too: their rows may lie before the
    place, where the log does not say yet that they are committed. Raises RetriableError where
    it takes long.
    """
    by, mariadb = time.monotonic() + _SHOWN_SECONDS, is_mariadb(session)
    late = _unshown(session, mariadb=mariadb)
    while late or (mariadb and not _has_reached(committed_place(session), place)):
        if time.monotonic() > by:
            raise RetriableError(
                problem=f"{title} has transactions in its binary log that cannot be read from "
                "its tables yet.",
                fix="Look whether it waits for a replica that acknowledges them, or for the "
                "end of one that XA RECOVER shows.",
            )
        time.sleep(_LOOK_SECONDS)
        if late:
            late &= _unshown(session, mariadb=mariadb)


def _has_reached(committed: Offset, place: Offset) -> bool:
    if place["file"]:
        return in_log(committed) >= in_log(place)
    return GtidSet(committed.get("gtid", "")).covers(GtidSet(place["gtid"]))


def _unshown(session: Session, *, mariadb: bool) -> set[tuple[str, str]]:
    return _prepared(session) if mariadb else _owned(session) | _prepared(session)


def _prepared(session: Session) -> set[tuple[str, str]]:
    """Return the transactions that XA has prepared, as far as the user may see them.

    MySQL asks for XA_RECOVER_ADMIN.
    """
    try:
        return {("XA", str(xid)) for *_, xid in session.rows("XA RECOVER")}
    except HeadraceError:
        return set()


def _owned(session: Session) -> set[tuple[str, str]]:
    """Return the GTIDs of transactions that are about to be committed.

    MySQL gives them as it does GTIDs, with the thread behind each: `uuid:5#31:6#32`. A
    transaction has its GTID before the log has it, and keeps it until tables show it.
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
