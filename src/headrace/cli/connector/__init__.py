"""``headrace connector``: works with the connectors of a server.

In it: a module for each kind of command. Never: Spark, or the store; a server is asked.
"""

from headrace.cli.connector.app import app

__all__ = ["app"]
