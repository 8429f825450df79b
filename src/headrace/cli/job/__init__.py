"""``headrace job``: works with the offline jobs of a server."""

from headrace.cli.job.app import app

__all__ = ["app"]
