"""Finds plugins by name, alias or class path, and resolves references.

In it: the registry, references and secrets, access rules for configurations, timeouts of plugin
calls. Never: the name of a plugin, or what a plugin does.
"""

from headrace.plugins.access import Access
from headrace.plugins.references import ProviderSettings, References, Secrets
from headrace.plugins.registry import (
    PluginInfo,
    PluginKind,
    PluginTimeoutError,
    Registry,
    aside,
    has_ended,
    within,
)
from headrace.sdk.config.values import HIDDEN

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
