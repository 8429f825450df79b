"""The embedded schema registry: subjects, versions and ids, and what fits what."""

from headrace.schemaregistry.embedded import EmbeddedRegistry, service_in
from headrace.schemaregistry.levels import Config
from headrace.schemaregistry.registering import Submitted
from headrace.schemaregistry.service import Listing, RegistryService
from headrace.schemaregistry.versions import Found

__all__ = [
    "Config",
    "EmbeddedRegistry",
    "Found",
    "Listing",
    "RegistryService",
    "Submitted",
    "service_in",
]
