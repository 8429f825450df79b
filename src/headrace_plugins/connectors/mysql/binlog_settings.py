"""Checks the settings of a MySQL or MariaDB server, and queries places in its binary log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace.sdk.connector import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session

ROW_FORMAT = "SET GLOBAL binlog_format = 'ROW'; Then start with a new snapshot."
FULL_IMAGE = "SET GLOBAL binlog_row_image = 'FULL'; Then start with a new snapshot."
NO_PARTIAL_JSON = "SET GLOBAL binlog_row_value_options = ''; Then start with a new snapshot."
_OPTIONS = (
    "Set log_bin = binlog, server_id = 1, binlog_format = ROW and binlog_row_image = FULL "
    "under [mysqld] in the server's option file, with a server_id that no other server has, "
    "and restart the server."
)
_NEW_NAMES = (8, 2)
"""The first MySQL version with SHOW BINARY LOG STATUS."""
_LEAST_SECONDS = 86_400
_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'binlog_format', "
    "'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', "
    "'log_bin_compress', 'expire_logs_days', 'binlog_expire_logs_seconds', 'server_id')"
)
_SNAPSHOT = (
    "SHOW STATUS WHERE variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"
)
_ISOLATION = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
"""Applies to the next transaction only."""
_START = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_CASCADES = """
SELECT table_name, referenced_table_name, delete_rule, update_rule
FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
  OR update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))
ORDER BY 1, 2"""
_NUMBER = re.compile(r"\d+$")
_POSITION = "SELECT BINLOG_GTID_POS(%s, %s)"
_MASTER_STATUS = "SHOW MASTER STATUS"


def examine_binlog(session: Session) -> Iterator[Finding]:
    """Yield findings on the settings and privileges required to follow the log."""
    found = dict(session.rows(_VARIABLES))

    def needed(name: str, wanted: str, fix: str, verdict: Verdict = Verdict.FAILED) -> Finding:
        given = str(found[name])
        met = given.upper() == wanted
        text = f"{name} is {given or 'empty'}"
        return Finding.of(
            f"{name} = {wanted or 'empty'}", text, fix, met=met, otherwise=verdict
        )

    mariadb = is_mariadb(session)

    def kept(name: str, value: str) -> str:
        return _kept(name, value, mariadb=mariadb)

    yield needed("log_bin", "ON", _OPTIONS)
    yield needed("binlog_format", "ROW", kept("binlog_format", "'ROW'"))
    yield needed("binlog_row_image", "FULL", kept("binlog_row_image", "'FULL'"))
    if "binlog_row_metadata" in found:
        fix = kept("binlog_row_metadata", "'FULL'")
        yield needed("binlog_row_metadata", "FULL", fix, Verdict.WARNING)
    if "binlog_row_value_options" in found:
        yield needed("binlog_row_value_options", "", kept("binlog_row_value_options", "''"))
    if "log_bin_compress" in found:
        yield Finding(
            "log_bin_compress, ON or OFF",
            Verdict.OK,
            f"log_bin_compress is {found['log_bin_compress']}",
        )
    yield _server_id(found, mariadb=mariadb)
    yield _age(found, mariadb=mariadb)
    yield from _rights(session, mariadb=mariadb)


def examine_cascades(session: Session, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield tables whose rows are changed by foreign keys: InnoDB does not log these changes.

    MySQL logs them since 9.6, unless it is configured to let InnoDB check foreign keys.
    """
    native = session.rows("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    if native and native[0][1] == "OFF":
        return
    for schema in sorted({table.name.schema for table in tables}):
        names = {each.name.name.lower() for each in tables if each.name.schema == schema}
        for name, parent, delete, update in session.rows(_CASCADES, [schema]):
            if name.lower() in names:
                yield Finding(
                    f"changes of {schema}.{name} by its foreign key to {parent}",
                    Verdict.WARNING,
                    f"ON DELETE {delete} ON UPDATE {update} changes its rows, but the binary "
                    "log does not contain these changes",
                    "Change these rows by separate statements or triggers, or compare "
                    "source and target by headrace verify --repair.",
                )


def _kept(name: str, value: str, *, mariadb: bool) -> str:
    """Return the fix that sets a variable permanently."""
    if not mariadb:
        return f"SET PERSIST {name} = {value};"
    line = f"{name} = {value}".replace("'", "")
    return (
        f"SET GLOBAL {name} = {value}; and add {line} under [mysqld] in the server's option "
        "file, as a restart discards the statement."
    )


def _server_id(found: dict[str, Any], *, mariadb: bool) -> Finding:
    is_set = int(found["server_id"]) > 0
    return Finding.of(
        "server_id other than 0",
        f"server_id is {found['server_id']}",
        _kept("server_id", "1", mariadb=mariadb),
        met=is_set,
    )


def _age(found: dict[str, Any], *, mariadb: bool) -> Finding:
    seconds = int(found.get("binlog_expire_logs_seconds") or 0)
    seconds = seconds or int(float(found.get("expire_logs_days") or 0) * 86_400)
    is_long = not seconds or seconds >= _LEAST_SECONDS
    name = "binlog_expire_logs_seconds"
    if name not in found:
        name = "expire_logs_days"
    fix = _kept(name, "604800" if name.endswith("seconds") else "7", mariadb=mariadb)
    return Finding.of(
        "binary logs that are kept for a day or longer",
        f"kept for {seconds} s" if seconds else "kept until they are purged",
        fix,
        met=is_long,
        otherwise=Verdict.WARNING,
    )


def _rights(session: Session, *, mariadb: bool) -> Iterator[Finding]:
    user = str(session.value("SELECT CURRENT_USER()"))
    given = [
        each[0].upper()
        for each in session.rows("SHOW GRANTS")
        if " ON *.* TO " in each[0].upper()
    ]
    rights = {
        right.strip()
        for grant in given
        for right in grant.partition("GRANT ")[2].partition(" ON *.* TO ")[0].split(",")
    }
    client = ("BINLOG MONITOR", "REPLICATION CLIENT") if mariadb else ("REPLICATION CLIENT",)
    for names in (("REPLICATION SLAVE",), client):
        has = bool(rights & {*names, "ALL PRIVILEGES", "SUPER" if not mariadb else ""})
        right = names[0]
        yield Finding.of(
            f"right {right}",
            f"{user} has it" if has else f"{user} does not have it",
            f"GRANT {right} ON *.* TO {_quoted(user)};",
            met=has,
        )


def grant_of(user: str | None, *, mariadb: bool) -> str:
    """Return the statement that lets a user follow the log."""
    client = "BINLOG MONITOR" if mariadb else "REPLICATION CLIENT"
    return f"GRANT REPLICATION SLAVE, {client} ON *.* TO '{user or 'user'}';"


def _quoted(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def current_place(session: Session) -> Offset:
    """Return the current end of the log.

    Raises ConfigError if the server does not write a binary log.
    """
    version = str(session.value("SELECT VERSION()"))
    is_new = "MariaDB" not in version and version_of(version) >= _NEW_NAMES
    rows = session.rows("SHOW BINARY LOG STATUS" if is_new else _MASTER_STATUS)
    if not rows:
        raise _no_log()
    file, pos, *_, gtids = rows[0]
    if "MariaDB" in version:  # the last column is not the GTIDs
        gtids = gtids_at(session, str(file), int(pos))
    return _place(session, str(file), int(pos), gtids)


def oldest_place(session: Session) -> Offset:
    """Return the start of the log that the server still has."""
    if not session.value("SELECT @@log_bin"):
        raise _no_log()
    rows = session.rows("SHOW BINARY LOGS")
    return {"file": str(rows[0][0]), "pos": 4}


def committed_place(session: Session) -> Offset:
    """Return a place in the log; on MariaDB all transactions before it are visible in tables.

    MySQL only reports the end of the log; there `await_commits` waits for the transactions
    before it.
    """
    if not is_mariadb(session):
        return current_place(session)
    session.rollback()
    try:
        session.execute(_ISOLATION)
        session.execute(_START)
        found = {name.lower(): value for name, value in session.rows(_SNAPSHOT)}
        if not found.get("binlog_snapshot_file"):
            raise _no_log()
        pos = int(found["binlog_snapshot_position"])
        file = found["binlog_snapshot_file"]
        return _place(session, file, pos, gtids_at(session, file, pos))
    finally:
        session.rollback()


def gtids_at(session: Session, file: str, pos: int) -> str | None:
    """Return the GTIDs before a place in MariaDB's log; None if invalid, or on MySQL."""
    if not is_mariadb(session):
        return None
    # The server scans the file from its start for the GTIDs. For the end of the log it knows
    # them: they are valid if the log ends at this place before and after the query.
    found = None
    if _ends_at(session, file, pos):
        found = session.value("SELECT @@global.gtid_binlog_pos")
    if found is None or not _ends_at(session, file, pos):
        found = session.value(_POSITION, [file, pos])
    return None if found is None else str(found)


def _ends_at(session: Session, file: str, pos: int) -> bool:
    return any((row[0], int(row[1])) == (file, pos) for row in session.rows(_MASTER_STATUS))


def server_of(session: Session) -> str:
    """Return the server's identity: MySQL's UUID, or MariaDB's server id."""
    name = "server_id" if is_mariadb(session) else "server_uuid"
    return str(session.value(f"SELECT @@global.{name}"))


def is_mariadb(session: Session) -> bool:
    """Return whether a server is MariaDB."""
    return "MariaDB" in str(session.value("SELECT VERSION()"))


def in_log(place: Offset) -> tuple[int, int]:
    """Return the sort key of places in the log of one server."""
    found = _NUMBER.search(str(place["file"]))
    return (int(found[0]) if found else 0, int(place["pos"]))


def _place(session: Session, file: str, pos: int, gtids: str | None) -> Offset:
    place: dict[str, object] = {"file": file, "pos": pos, "server": server_of(session)}
    if gtids:
        place["gtid"] = re.sub(r"\s", "", str(gtids))
    return place


def _no_log() -> ConfigError:
    return ConfigError(
        problem="The server does not write a binary log.",
        fix=_OPTIONS,
    )
