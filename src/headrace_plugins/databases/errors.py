"""The errors of database connectors."""

from __future__ import annotations

from headrace.sdk import HeadraceError


class DatabaseError(HeadraceError):
    """A database refused a statement; a retry would fail too."""

    code = "database.failed"


class UnsupportedError(DatabaseError):
    """A database does not support a statement, such as a type change of a view's column."""

    code = "database.unsupported"


UNREACHABLE = (
    "Start the server, or correct the host and the port in connection.url. A firewall may "
    "block the connection."
)
"""The fix for a server that does not answer."""
