"""Finds plugins by name, alias or class path, and what references stand for."""

from headrace.plugins.access import Access
from headrace.plugins.references import ProviderSettings, References
from headrace.plugins.registry import PluginInfo, PluginKind, Registry
from headrace.plugins.secrets import HIDDEN, Secrets

__all__ = [
    "HIDDEN",
    "Access",
    "PluginInfo",
    "PluginKind",
    "ProviderSettings",
    "References",
    "Registry",
    "Secrets",
]
