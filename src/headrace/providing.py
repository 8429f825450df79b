"""The installed plugins, with configuration providers as the settings want them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.plugins import ProviderSettings, Registry, Secrets
from headrace.sdk import ProviderContext

if TYPE_CHECKING:
    from headrace.settings import Settings

_MOUNTED = Path("/run/secrets")
"""Where Docker mounts the secrets of a container, and many others do as well."""


def open_registry(settings: Settings, secrets: Secrets, *, serving: bool) -> Registry:
    """Return the installed plugins.

    Args:
        settings: The process's settings.
        secrets: Gets to know the values of references.
        serving: Whether configurations come from others.
    """
    context = ProviderContext(folders=(settings.home / "secrets", _MOUNTED), serving=serving)
    keys = settings.config_providers
    return Registry(ProviderSettings(keys=keys, context=context, secrets=secrets))
