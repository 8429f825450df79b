"""The registry in this installation's own store, for converters."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace_plugins.confluent.schema_registry import (
    RegisteredSchema,
    SchemaNotFoundError,
    SchemaText,
)
from headrace_registry.model import Listing, Submitted
from headrace_registry.service import RegistryService
from headrace_registry.store import SqlRegistryStore
from headrace_registry.subjects import LATEST, Config

if TYPE_CHECKING:
    from headrace.store import Place
    from headrace_registry.model import Found

_KEPT = 10_000
_ALL = Listing(deleted=True)


class EmbeddedRegistry:
    """A SchemaRegistryAdmin without a server. See `SchemaRegistry` for the methods.

    After unpickling it opens the store again, so it works in the Python workers on the same
    machine; a cluster needs the registry's URL.
    """

    def __init__(self, service: RegistryService) -> None:
        self._service = service
        self._ids: dict[int, SchemaText] = {}

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return EmbeddedRegistry, (self._service,)

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        return self._service.register(subject, Submitted(schema), normalize=normalize).stored.id

    def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        return _registered(
            self._service.lookup(subject, Submitted(schema), normalize=normalize)
        )

    def by_id(self, schema_id: int) -> SchemaText:
        known = self._ids.get(schema_id)
        if known is None:
            known = self._service.by_id(schema_id)[0].schema
            if len(self._ids) < _KEPT:
                self._ids[schema_id] = known
        return known

    def latest(self, subject: str) -> RegisteredSchema:
        return _registered(self._service.version(subject, str(LATEST)))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return _registered(self._service.version(subject, str(version), deleted=True))

    def versions(self, subject: str) -> list[int]:
        return self._service.versions(subject)

    def all_versions(self, subject: str) -> list[int]:
        return self._service.versions(subject, _ALL)

    def subjects(self) -> list[str]:
        return self._service.subjects()

    def all_subjects(self) -> list[str]:
        return self._service.subjects(_ALL)

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        return self._service.incompatibilities(subject, Submitted(schema))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        self._ids.clear()
        return self._service.delete_subject(subject, permanent=permanent)

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        self._ids.clear()
        return self._service.delete_version(subject, str(version), permanent=permanent)

    def compatibility(self, subject: str | None) -> str:
        return str(self._service.config(subject, inherited=True).level)

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        if level is not None:
            self._service.set_config(subject, Config.from_json({"compatibility": level}))
            return
        with suppress(SchemaNotFoundError):  # nothing was set
            self._service.drop_config(subject)

    def close(self) -> None:
        self._service.close()


def service_in(place: Place) -> RegistryService:
    """Return the registry in a store's database; nothing is opened yet."""
    return RegistryService(SqlRegistryStore(place))


def open_embedded(place: Place) -> EmbeddedRegistry:
    """Return the registry in a store's database, for converters.

    The runtime finds and calls it by entry point. Nothing is opened yet.
    """
    return EmbeddedRegistry(service_in(place))


def _registered(found: Found) -> RegisteredSchema:
    version = found.version
    return RegisteredSchema(
        version.subject, version.version, found.stored.id, found.stored.schema
    )
