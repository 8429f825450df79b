"""Our own REST API, under /v1/. `app.py` says how an area is added."""

from headrace.rest.v1.app import v1_api, v1_app
from headrace.rest.v1.problems import PREFIX
from headrace.rest.v1.requests import Slots
from headrace.rest.v1.trials import Workbench

__all__ = ["PREFIX", "Slots", "Workbench", "v1_api", "v1_app"]
