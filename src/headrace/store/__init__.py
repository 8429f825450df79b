"""Durable control state behind two Protocols, in SQLite or PostgreSQL.

In it: transactions, leases, positions, batches, connectors, backups. Of the kernel only this
package uses SQLAlchemy. Never: the data of topics, a thread of its own, or a decision about a
connector.
"""

from headrace.store.backups import (
    BackupNotSupportedError,
    back_up,
    check_not_lost,
    go_on_from_earlier,
    put_back,
    start_empty,
)
from headrace.store.connections import Mode, in_mode
from headrace.store.connector_sql import SqlConnectorStore
from headrace.store.database import Place, memory_database, open_database
from headrace.store.errors import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    StoreDamagedError,
    StoreMissingError,
    StoreUnavailableError,
    TaskNotFoundError,
    TaskRemovedError,
)
from headrace.store.protocol import ConnectorStore, Store
from headrace.store.rules import existing
from headrace.store.server_place import ServerPlaces
from headrace.store.sql import SqlStore
from headrace.store.tables import Name

__all__ = [
    "BackupNotSupportedError",
    "ConnectorChangedError",
    "ConnectorExistsError",
    "ConnectorNotFoundError",
    "ConnectorStore",
    "Mode",
    "Name",
    "Place",
    "ServerPlaces",
    "SqlConnectorStore",
    "SqlStore",
    "Store",
    "StoreDamagedError",
    "StoreMissingError",
    "StoreUnavailableError",
    "TaskNotFoundError",
    "TaskRemovedError",
    "back_up",
    "check_not_lost",
    "existing",
    "go_on_from_earlier",
    "in_mode",
    "memory_database",
    "open_database",
    "put_back",
    "start_empty",
]
