"""``headrace job``: manages the offline jobs of a server.

In it: a module for each kind of command, and runs without a server (`runs.py`). Never: rules
about jobs, which are in `control`, where the API uses them too.
"""

from headrace.cli.job.app import app

__all__ = ["app"]
