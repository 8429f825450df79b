"""``headrace connector``: works with the connectors of a server."""

from headrace.cli.connector.app import app

__all__ = ["app"]
