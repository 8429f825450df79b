"""Finds plugins by name, alias or class path."""

from headrace.plugins.registry import PluginInfo, PluginKind, Registry

__all__ = ["PluginInfo", "PluginKind", "Registry"]
