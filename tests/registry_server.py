"""A schema registry that is served, for the clients and converters that ask one."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.rest import Listener, Serving
from headrace_registry.embedded import service_in
from headrace_registry.rest import registry_app
from headrace_registry.service import RegistryService


@contextmanager
def served(
    service: RegistryService | None = None, listener: Listener | None = None
) -> Iterator[Serving]:
    """Serve a registry, by itself an empty one, on a free port for as long as this lasts."""
    listener = listener or Listener(port=0)
    with (
        TemporaryDirectory() as folder,
        closing(service or service_in(Path(folder) / "registry.db")) as kept,
        Serving(registry_app(kept, listener), listener) as serving,
    ):
        serving.start()
        yield serving
