"""Durable control state behind one Protocol."""

from headrace.store.memory import MemoryStore
from headrace.store.protocol import Store
from headrace.store.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "Store"]
