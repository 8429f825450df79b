"""The REST APIs: Kafka Connect's, RocketMQ Connect's and Headrace's own.

In it: routes, error responses, tokens, limits, the listener. The only package of the kernel
that uses FastAPI and uvicorn. Never: business rules, SQL, or Spark.
"""

from headrace.rest.auth import behind, needs_admin_to_change
from headrace.rest.connect import connect_app
from headrace.rest.errors import ErrorStyle, add_errors
from headrace.rest.listener import Listener, RateLimit, Role, SharedToken, Tls, TokenFile
from headrace.rest.requests import Encoded
from headrace.rest.rocketmq import rocketmq_app
from headrace.rest.server import Opening, Serving, metrics_app, server_app
from headrace.rest.v1 import Workbench, v1_api

__all__ = [
    "Encoded",
    "ErrorStyle",
    "Listener",
    "Opening",
    "RateLimit",
    "Role",
    "Serving",
    "SharedToken",
    "Tls",
    "TokenFile",
    "Workbench",
    "add_errors",
    "behind",
    "connect_app",
    "metrics_app",
    "needs_admin_to_change",
    "rocketmq_app",
    "server_app",
    "v1_api",
]
