"""The command line: parses, makes one call, and exits with a code.

In it: commands, tables, JSON, progress and errors as people read them. Never: a decision, SQL,
or an import at the start that a command may not need.
"""

from headrace.cli.app import main

__all__ = ["main"]
