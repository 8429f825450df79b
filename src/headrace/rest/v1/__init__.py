"""Headrace's own REST API, under /v1/. `app.py` explains how to add an area.

In it: a module for each area, with its requests and responses. Never: business rules or state.
"""

from headrace.rest.v1.app import v1_api, v1_app
from headrace.rest.v1.problems import PREFIX
from headrace.rest.v1.requests import Slots
from headrace.rest.v1.trials import Workbench

__all__ = ["PREFIX", "Slots", "Workbench", "v1_api", "v1_app"]
