"""A typed client of a server's REST API, for programs and for the command line.

>>> from headrace.client import Client
>>> with Client("http://127.0.0.1:8083") as client:
...     client.create("lines-in", {"connector.class": "FileStreamSource", "file": "in.txt"})
...     client.status("lines-in").state

It works with a server of Kafka Connect too, but for what only ours has. In it: HTTP, and
answers as values. Never: what a server imports.
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
    LoggerLevel,
    OffsetInfo,
    PluginSummary,
    TaskHealth,
    Validation,
)
from headrace.client.v1 import LetterChoice, TaskFigures
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
