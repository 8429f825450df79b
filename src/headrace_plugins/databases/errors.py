"""What connectors of databases raise."""

from __future__ import annotations

from headrace.sdk import HeadraceError


class DatabaseError(HeadraceError):
    """A database refused a statement, and would refuse it again."""

    code = "database.failed"
