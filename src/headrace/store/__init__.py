"""Durable control state behind one Protocol."""

from headrace.store.memory import MemoryStore
from headrace.store.protocol import Store
from headrace.store.registry_memory import MemoryRegistryStore
from headrace.store.registry_protocol import RegistryRows, RegistrySetting, RegistryStore
from headrace.store.registry_sqlite import SqliteRegistryStore
from headrace.store.sqlite import SqliteStore

__all__ = [
    "MemoryRegistryStore",
    "MemoryStore",
    "RegistryRows",
    "RegistrySetting",
    "RegistryStore",
    "SqliteRegistryStore",
    "SqliteStore",
    "Store",
]
