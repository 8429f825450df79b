"""A schema registry in memory that is served, for the clients and converters that ask one."""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.rest import Door, Serving, registry_app
from headrace.schemaregistry import RegistryService
from headrace.store import MemoryRegistryStore


@contextmanager
def served(service: RegistryService | None = None) -> Iterator[Serving]:
    """Serve a registry, by itself an empty one, on a free port for as long as this lasts."""
    door = Door(port=0)
    app = registry_app(service or RegistryService(MemoryRegistryStore()), door)
    with Serving(app, door) as serving:
        serving.start()
        yield serving
