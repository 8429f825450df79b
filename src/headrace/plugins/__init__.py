"""Finds plugins by name, alias or class path, and what references stand for."""

from headrace.plugins.access import Access
from headrace.plugins.references import ProviderSettings, References
from headrace.plugins.registry import PluginInfo, PluginKind, Registry
from headrace.plugins.secrets import HIDDEN, Secrets
from headrace.plugins.timeouts import PluginTimeoutError, aside, has_ended, within

__all__ = [
    "HIDDEN",
    "Access",
    "PluginInfo",
    "PluginKind",
    "PluginTimeoutError",
    "ProviderSettings",
    "References",
    "Registry",
    "Secrets",
    "aside",
    "has_ended",
    "within",
]
