"""Our own REST API, under /v1/. `app.py` says how an area is added.

In it: a module for each area, its requests and answers. Never: a rule, or an area's state.
"""

from headrace.rest.v1.app import v1_api, v1_app
from headrace.rest.v1.problems import PREFIX
from headrace.rest.v1.requests import Slots
from headrace.rest.v1.trials import Workbench

__all__ = ["PREFIX", "Slots", "Workbench", "v1_api", "v1_app"]
