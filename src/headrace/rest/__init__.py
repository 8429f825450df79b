"""HTTP in, one call, HTTP out. FastAPI and its server stay behind this door."""

from headrace.rest.connect import connect_app
from headrace.rest.door import Door
from headrace.rest.metrics import WithMetrics, metrics_app
from headrace.rest.opening import Opening
from headrace.rest.rate import RateLimit
from headrace.rest.registry import registry_app
from headrace.rest.rocketmq import rocketmq_app
from headrace.rest.server import server_app
from headrace.rest.serving import Serving
from headrace.rest.tls import Tls
from headrace.rest.tokens import Role, SharedToken, TokenFile
from headrace.rest.v1 import Workbench, v1_api

__all__ = [
    "Door",
    "Opening",
    "RateLimit",
    "Role",
    "Serving",
    "SharedToken",
    "Tls",
    "TokenFile",
    "WithMetrics",
    "Workbench",
    "connect_app",
    "metrics_app",
    "registry_app",
    "rocketmq_app",
    "server_app",
    "v1_api",
]
