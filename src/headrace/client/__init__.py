"""A typed client of a server's REST API, for programs and the command line.

>>> from headrace.client import Client
>>> with Client("http://127.0.0.1:8083") as client:
...     client.create("lines-in", {"connector.class": "FileStreamSource", "file": "in.txt"})
...     client.status("lines-in").state

It also works with a Kafka Connect server, except for features that only Headrace has. In it:
HTTP, and responses as values. Never: imports that only a server needs.
"""

from headrace.client.client import Client
from headrace.client.http import (
    AccessDeniedError,
    ConflictError,
    ConnectorFailedError,
    NotThereError,
    RefusedError,
    RunFailedError,
    ServerError,
    ServerUnreachableError,
    TooLateError,
)
from headrace.client.jobs import JobsApi
from headrace.client.types import (
    ConnectorInfo,
    ConnectorStatus,
    LetterChoice,
    LoggerLevel,
    OffsetInfo,
    PluginSummary,
    TaskFigures,
    TaskHealth,
    Validation,
)
from headrace.client.waiting import Goal, Wait

__all__ = [
    "AccessDeniedError",
    "Client",
    "ConflictError",
    "ConnectorFailedError",
    "ConnectorInfo",
    "ConnectorStatus",
    "Goal",
    "JobsApi",
    "LetterChoice",
    "LoggerLevel",
    "NotThereError",
    "OffsetInfo",
    "PluginSummary",
    "RefusedError",
    "RunFailedError",
    "ServerError",
    "ServerUnreachableError",
    "TaskFigures",
    "TaskHealth",
    "TooLateError",
    "Validation",
    "Wait",
]
