"""``headrace export`` and ``headrace apply``: connectors as files that are kept in Git."""

from headrace.cli.gitops.applying import apply
from headrace.cli.gitops.exporting import export

__all__ = ["apply", "export"]
