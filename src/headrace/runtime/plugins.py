"""The installed plugins and the schema registry, opened according to the settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.control import check_definition, check_names, read_definitions
from headrace.plugins import Access, ProviderSettings, Registry, Secrets
from headrace.sdk import ProviderContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.control import Findings
    from headrace.model import Definition
    from headrace.sdk.converter import RuntimeRegistry
    from headrace.settings import Settings
    from headrace.store import Place

_MOUNTED = Path("/run/secrets")
"""Where Docker, and many other runtimes, mount the secrets of a container."""


class Checks(ABC):
    """Reads and checks files of definitions; needs only the plugins."""

    @property
    @abstractmethod
    def registry(self) -> Registry:
        """The installed plugins."""

    def definitions(self, files: Sequence[Path]) -> list[Definition]:
        """Return the definitions of files that will run together. Raises ConfigErrors."""
        found = [d for file in files for d in read_definitions(file, self.registry.reads)]
        check_names(found)
        return found

    def check(self, definition: Definition) -> Findings:
        """Return the findings about a definition; starts nothing."""
        return check_definition(definition, self.registry)


class Checker(Checks):
    """The checks without a ``Runtime``, whose imports take longer than the checks."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    @override
    def registry(self) -> Registry:
        return self._registry


def open_registry(
    settings: Settings, secrets: Secrets, *, serving: bool, shared: bool = False
) -> Registry:
    """Return the installed plugins; see ``Runtime`` for ``serving`` and ``shared``.

    Resolved values of references are added to the secrets.
    """
    context = ProviderContext(
        folders=(settings.home / "secrets", _MOUNTED), serving=serving, shared=shared
    )
    keys = settings.config_providers
    providers = ProviderSettings(keys=keys, context=context, secrets=secrets)
    access = _access(settings, serving=serving, shared=shared)
    return Registry(providers, access, settings.connector_timeout)


def open_schema_registry(place: Place) -> RuntimeRegistry | None:
    """Return the schema registry in a store's database; None if it is not installed.

    It is a separate package with an entry point in the group ``headrace.schema_registry``: a
    function that takes the store's place. Nothing is opened yet.
    """
    for entry in entry_points(group="headrace.schema_registry"):
        made: RuntimeRegistry = entry.load()(place)
        return made
    return None


def _access(settings: Settings, *, serving: bool, shared: bool) -> Access:
    """Return what configurations may use; a command that its user runs is not restricted."""
    if not serving:
        return Access()
    paths, code = settings.allowed_paths, settings.allow_python_code
    drivers = settings.allowed_drivers
    if paths is None and shared:
        paths = (settings.home / "data",)
    if drivers is None and shared:
        drivers = ()
    classes = {each.get("class") for each in settings.config_providers.values()}
    classes |= {each.get("type") for each in settings.reporters.values()}
    return Access(
        paths=paths,
        code=not shared if code is None else code,
        drivers=drivers,
        classes=frozenset(each for each in classes if each),
    )
