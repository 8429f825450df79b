"""What a client has to be to send a request of RocketMQ Connect's API, which changes by GET."""

from __future__ import annotations

import re

from headrace.rest.tokens import Role

__all__ = ["needed_role"]

_READS = {"GET", "HEAD", "OPTIONS"}
_OF_VIEWERS = re.compile(
    r"/|/getClusterInfo|/allocated/(connectors|tasks)|/plugin/(list|list/connectors|config)"
    r"|/connectors/list|/connectors/[^/]+/(config|status|tasks|tasks/[^/]+/status)"
)
_OF_OPERATORS = re.compile(r"/connectors/([^/]+/(pause|resume)|(pause|resume)/all)")


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request needs, by its method and its path as it was sent.

    What is not known to only look, or to change no more than how a connector is, needs an
    admin: most of what creates and removes is a GET too.
    """
    path = path.rstrip("/") or "/"
    if method in _READS and _OF_VIEWERS.fullmatch(path):
        return Role.VIEWER
    return Role.OPERATOR if _OF_OPERATORS.fullmatch(path) else Role.ADMIN
