"""``headrace export`` and ``headrace apply``: connectors as files that are kept in Git."""

from headrace.cli.gitops.apply import apply
from headrace.cli.gitops.export import export

__all__ = ["apply", "export"]
