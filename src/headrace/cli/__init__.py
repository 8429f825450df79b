"""The command line: parses, asks the runtime or a server, shows the answer, exits with a code.

In it: commands, tables, JSON, progress, errors as people read them, and the plan of `apply`.
Never: SQL, Spark, or an import at the start that a command may not need.
"""

from headrace.cli.app import main

__all__ = ["main"]
