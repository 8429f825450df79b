"""``headrace job``: works with the offline jobs of a server.

In it: a module for each kind of command, and runs without a server (`local.py`). Never: a rule
about jobs; those are in `control`, behind the API too.
"""

from headrace.cli.job.app import app

__all__ = ["app"]
