"""Waits until transactions in the binary log are visible in the tables.

A transaction is in the log before it is visible in tables. The delay is milliseconds, or as
long as the server waits for a semi-synchronous replica.
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
    """Return a place in the log; on MariaDB all transactions before it are visible in tables.

    MySQL only reports the end of the log; there `await_commits` waits for the transactions
    before it.
    """
    if not is_mariadb(session):
        return current_place(session)
    try:
        return snapshot_place(session)
    finally:
        session.rollback()


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
