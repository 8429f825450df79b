"""``headrace connector``: manages the connectors of a server.

In it: a module for each kind of command. Never: Spark, or the store; only requests to a server.
"""

from headrace.cli.connector.app import app

__all__ = ["app"]
