"""What connectors of databases raise."""

from __future__ import annotations

from headrace.sdk import HeadraceError


class DatabaseError(HeadraceError):
    """A database refused a statement, and would refuse it again."""

    code = "database.failed"


class UnsupportedError(DatabaseError):
    """A database cannot do what a statement asks for, as where a view has a column."""

    code = "database.unsupported"


UNREACHABLE = (
    "Start the server, or correct the host and the port in connection.url; a firewall may be "
    "in between."
)
"""What to do about a server that does not answer."""
