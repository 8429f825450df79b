"""Translates the errors of JDBC drivers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, RecordError, RetriableError
from headrace_plugins.databases.errors import UNREACHABLE, DatabaseError

if TYPE_CHECKING:
    from headrace_plugins.databases.address import Address
    from headrace_plugins.databases.jdbc_connection import JdbcError

_UNKNOWN_TYPE = re.compile(r"UNRECOGNIZED_SQL_TYPE\] Unrecognized SQL type - name: (.+?), id:")
_RETRIABLE = {
    "SQLTransientException",
    "SQLRecoverableException",
    "SQLNonTransientConnectionException",
}
_REFUSING = {"SQLIntegrityConstraintViolationException", "SQLDataException"}
_REFUSES = re.compile(
    r"(?i)constraint|duplicate|unique|not null|out of range|too long|conver(?:t|sion)|overflow"
)
_BUSY = re.compile(r"(?i)conflict|deadlock|lock|timed? ?out|connection")
"""Messages of drivers that report no SQLSTATE."""


def translated(error: JdbcError, address: Address) -> Exception:
    """Return Headrace's error for a driver's error."""
    title, state, kind = address.title, error.sqlstate, error.kind
    text = " ".join(error.message.split()).rstrip(".")
    if state.startswith("28") or kind == "SQLInvalidAuthorizationSpecException":
        return ConfigError(
            problem=f"{title} denies access to {address.user or 'this user'}: {text}.",
            fix="Correct connection.user and connection.password.",
            field="connection.password",
        )
    if state == "42501":
        return ConfigError(
            problem=f"{title}: {text}.",
            fix=f"Grant the privilege to {address.user or 'the user'}.",
            field="connection.user",
        )
    if unknown := _UNKNOWN_TYPE.search(text):
        return ConfigError(
            problem=f"{title}: Spark has no type for {unknown[1]}.",
            fix="Use a query that casts the column to another type.",
            field="query",
        )
    is_refused = state[:2] in {"22", "23"} or kind in _REFUSING
    if is_refused or (not state and _REFUSES.search(text)):
        return RecordError(
            problem=f"{title} refuses a row: {text}.",
            fix="Change the rows with a transform, or the table's columns and constraints.",
        )
    is_busy = state[:2] in {"08", "40", "53", "57"} or state in {"HYT00", "HYT01"}
    if is_busy or kind in _RETRIABLE or (not state and _BUSY.search(text)):
        fix = UNREACHABLE if state.startswith("08") else ""
        return RetriableError(problem=f"{title}: {text}.", fix=fix)
    return DatabaseError(problem=f"{title}: {text}{f' (SQLSTATE {state})' if state else ''}.")
