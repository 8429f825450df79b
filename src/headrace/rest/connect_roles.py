"""What a client has to be to send a request of Kafka Connect's API."""

from __future__ import annotations

import re

from headrace.rest.guard import needs_admin_to_change
from headrace.rest.tokens import Role

__all__ = ["needed_role"]

_OF_OPERATORS = re.compile(
    r"/connectors/[^/]+/"
    r"(pause|resume|stop|restart|offsets|topics/reset|tasks/[^/]+/restart)"
)
"""What changes how a connector is and where it stands, and not what it does."""


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request needs, by its method and its path as it was sent."""
    needed = needs_admin_to_change(method, path)
    if needed is Role.ADMIN and _OF_OPERATORS.fullmatch(path.rstrip("/")):
        return Role.OPERATOR
    return needed
