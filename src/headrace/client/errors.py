"""What a server may answer instead of what was asked for."""

from __future__ import annotations

from headrace.sdk.errors import Category, ConfigError, HeadraceError

__all__ = [
    "AccessDeniedError",
    "ConflictError",
    "ConnectorFailedError",
    "NotThereError",
    "RefusedError",
    "ServerError",
    "ServerUnreachableError",
    "TooLateError",
]


class ServerError(HeadraceError):
    """The server could not do what it was asked to."""

    code = "server.failed"


class ServerUnreachableError(ServerError):
    """No server answers there, or what answers is none."""

    code = "server.unreachable"
    category = Category.ENVIRONMENT


class AccessDeniedError(ServerError):
    """The server does not know who asks, or does not let them do that."""

    code = "server.denied"
    category = Category.CONFIG


class NotThereError(ServerError):
    """The server has nothing of that name."""

    code = "server.not_found"
    category = Category.CONFIG


class ConflictError(ServerError):
    """It is there already, or is changing at this moment."""

    code = "server.conflict"


class RefusedError(ServerError):
    """The server does not take what it was given.

    ``faults`` holds what is wrong with a configuration, key by key, where that was it.
    """

    code = "server.refused"
    category = Category.CONFIG
    faults: tuple[ConfigError, ...] = ()


class ConnectorFailedError(ServerError):
    """A connector or one of its tasks failed while something else was waited for."""

    code = "connector.failed"


class TooLateError(ServerError):
    """What was waited for has not come in time; it may still come."""

    code = "connector.not_in_time"
