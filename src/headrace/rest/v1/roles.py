"""What a client has to be to send a request of our own API."""

from __future__ import annotations

import re

from headrace.rest.guard import needs_admin_to_change
from headrace.rest.tokens import Role

__all__ = ["needed_role"]

_OF_OPERATORS = re.compile(
    r"/v1/(bulk/(pause|resume|stop|restart)|dead-letters/[^/]+/discard"
    r"|connectors/[^/]+/(dead-letters/replay|offsets|offsets/(reset|rewind|undo)"
    r"|tasks/[^/]+/batches/[^/]+/give-up))"
)
"""What changes how connectors are and where they stand, and not what they do.

A preview and a trial run code of the configuration that they are given, which is for admins.
"""


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request needs, by its method and its path as it was sent."""
    needed = needs_admin_to_change(method, path)
    operates = needed is Role.ADMIN and _OF_OPERATORS.fullmatch(path)
    return Role.OPERATOR if operates else needed
