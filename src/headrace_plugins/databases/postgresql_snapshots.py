"""Snapshots of PostgreSQL: one state that several connections read."""

from __future__ import annotations

from typing import Any

from headrace.sdk import RetriableError


def begin_snapshot(connection: Any) -> None:
    """Let the next transaction see one state, and change nothing."""
    from psycopg import IsolationLevel  # noqa: PLC0415 - an extra

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True


def see_snapshot(connection: Any, snapshot: str, title: str) -> None:
    """Begin a transaction that sees an exported snapshot of the database of this title.

    Raises RetriableError: it is gone, as the connection is that had exported it. The batch
    exports another when it runs again.
    """
    from psycopg import errors, sql  # noqa: PLC0415 - an extra

    begin_snapshot(connection)
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
    except (
        errors.InvalidParameterValue,
        errors.UndefinedObject,
        errors.ObjectNotInPrerequisiteState,
    ) as error:
        raise RetriableError(
            problem=f"{title} has lost the snapshot that is read: {error}"
        ) from error
