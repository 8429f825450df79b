"""A sink that prints records."""

from headrace_plugins.connectors.console.connector import ConsoleSink, ConsoleTask

__all__ = ["ConsoleSink", "ConsoleTask"]
