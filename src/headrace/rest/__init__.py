"""HTTP in, one call, HTTP out. FastAPI and its server stay behind this door."""

from headrace.rest.door import Door
from headrace.rest.registry import registry_app
from headrace.rest.serving import Serving
from headrace.rest.tls import Tls

__all__ = ["Door", "Serving", "Tls", "registry_app"]
