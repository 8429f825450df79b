"""HTTP in, one call, HTTP out. FastAPI and its server stay behind this door."""

from headrace.rest.connect import connect_app
from headrace.rest.door import Door
from headrace.rest.guard import behind, needs_admin_to_change
from headrace.rest.metrics import WithMetrics, metrics_app
from headrace.rest.opening import Opening
from headrace.rest.rate import RateLimit
from headrace.rest.requests import Encoded
from headrace.rest.rocketmq import rocketmq_app
from headrace.rest.server import server_app
from headrace.rest.serving import Serving
from headrace.rest.tls import Tls
from headrace.rest.tokens import Role, SharedToken, TokenFile
from headrace.rest.v1 import Workbench, v1_api

__all__ = [
    "Door",
    "Encoded",
    "Opening",
    "RateLimit",
    "Role",
    "Serving",
    "SharedToken",
    "Tls",
    "TokenFile",
    "WithMetrics",
    "Workbench",
    "behind",
    "connect_app",
    "metrics_app",
    "needs_admin_to_change",
    "rocketmq_app",
    "server_app",
    "v1_api",
]
