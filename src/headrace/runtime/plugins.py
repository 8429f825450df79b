"""The installed plugins and schema registry, as the settings want them."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.plugins import Access, ProviderSettings, Registry, Secrets
from headrace.sdk import ProviderContext

if TYPE_CHECKING:
    from headrace.sdk.converter import RuntimeRegistry
    from headrace.settings import Settings
    from headrace.store import Place

_MOUNTED = Path("/run/secrets")
"""Where Docker mounts the secrets of a container, and many others do as well."""


def open_registry(
    settings: Settings, secrets: Secrets, *, serving: bool, shared: bool = False
) -> Registry:
    """Return the installed plugins, see ``Runtime`` for who uses them.

    The secrets get to know the values of references.
    """
    context = ProviderContext(
        folders=(settings.home / "secrets", _MOUNTED), serving=serving, shared=shared
    )
    keys = settings.config_providers
    providers = ProviderSettings(keys=keys, context=context, secrets=secrets)
    access = _access(settings, serving=serving, shared=shared)
    return Registry(providers, access, settings.connector_timeout)


def open_schema_registry(place: Place) -> RuntimeRegistry | None:
    """Return the schema registry in a store's database; None if none is installed.

    It is a package of its own, found by the entry-point group ``headrace.schema_registry``: a
    function that takes the store's place. Nothing is opened yet.
    """
    for entry in entry_points(group="headrace.schema_registry"):
        made: RuntimeRegistry = entry.load()(place)
        return made
    return None


def _access(settings: Settings, *, serving: bool, shared: bool) -> Access:
    """Return what configurations may use; who runs a command may use what is theirs."""
    if not serving:
        return Access()
    paths, code = settings.allowed_paths, settings.allow_python_code
    if paths is None and shared:
        paths = (settings.home / "data",)
    classes = {each.get("class") for each in settings.config_providers.values()}
    classes |= {each.get("type") for each in settings.reporters.values()}
    return Access(
        paths=paths,
        code=not shared if code is None else code,
        classes=frozenset(each for each in classes if each),
    )
