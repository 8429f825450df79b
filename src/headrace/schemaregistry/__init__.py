"""The embedded schema registry: subjects, versions and ids, and what fits what."""

from headrace.schemaregistry.embedded import EmbeddedRegistry, service_in
from headrace.schemaregistry.reading import Found
from headrace.schemaregistry.registering import Submitted
from headrace.schemaregistry.scopes import Config
from headrace.schemaregistry.service import Listing, RegistryService

__all__ = [
    "Config",
    "EmbeddedRegistry",
    "Found",
    "Listing",
    "RegistryService",
    "Submitted",
    "service_in",
]
