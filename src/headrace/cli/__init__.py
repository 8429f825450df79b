"""The command line: parses, makes one call, and exits with a code."""

from headrace.cli.app import main

__all__ = ["main"]
