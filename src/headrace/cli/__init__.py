"""The command line: calls the runtime or a server, prints the result, sets the exit code.

In it: commands, tables, JSON, progress, error messages, and the plan of `apply`.
Never: SQL, Spark outside `setup`, or a module-level import that some commands do not need.
"""

from headrace.cli.app import main

__all__ = ["main"]
