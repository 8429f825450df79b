"""Reporters: where metrics go beside Prometheus."""

from headrace_plugins.reporters.json_lines import JsonLines

__all__ = ["JsonLines"]
