"""Schema registries: what they hold, what is asked of them, and a client over HTTP."""

from headrace.sdk.schemaregistry.client import HttpSchemaRegistry, open_registry
from headrace.sdk.schemaregistry.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from headrace.sdk.schemaregistry.keys import EMBEDDED, URL_KEY, registry_config
from headrace.sdk.schemaregistry.protoc import compile_proto
from headrace.sdk.schemaregistry.protocol import (
    SchemaRegistry,
    SchemaRegistryAdmin,
    resolve_references,
)
from headrace.sdk.schemaregistry.schema import (
    RegisteredSchema,
    SchemaReference,
    SchemaText,
    SchemaType,
)

__all__ = [
    "EMBEDDED",
    "URL_KEY",
    "HttpSchemaRegistry",
    "IncompatibleSchemaError",
    "InvalidSchemaError",
    "RegisteredSchema",
    "RegistryRefusedError",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaRegistryAdmin",
    "SchemaRegistryError",
    "SchemaText",
    "SchemaType",
    "compile_proto",
    "open_registry",
    "registry_config",
    "resolve_references",
]
