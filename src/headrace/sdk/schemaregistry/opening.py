"""Opens the schema registry that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.errors import ConfigError
from headrace.sdk.schemaregistry.address import Address
from headrace.sdk.schemaregistry.client import HttpSchemaRegistry
from headrace.sdk.schemaregistry.keys import EMBEDDED, URL_KEY

if TYPE_CHECKING:
    from headrace.sdk.config import Config
    from headrace.sdk.schemaregistry.protocol import SchemaRegistry

__all__ = ["open_registry"]


def open_registry(config: Config, embedded: SchemaRegistry | None) -> SchemaRegistry:
    """Return the registry that the keys of `registry_config` name; nothing is sent yet.

    Args:
        config: Parsed with those keys in its definition.
        embedded: The registry in the installation's own store, as the context gives it. It
            serves the Python workers of one machine; on a cluster use a URL.

    Raises:
        ConfigError: A value does not fit, or there is no embedded registry here.
    """
    if config.get_str(URL_KEY).strip().lower() != EMBEDDED:
        return HttpSchemaRegistry(Address.of(config))
    if embedded is None:
        problem = "There is no embedded schema registry here."
        raise ConfigError(
            problem,
            field=URL_KEY,
            fix="Give the URL of a schema registry.",
        )
    return embedded
