"""Durable control state in SQLite or PostgreSQL; the only package that uses SQLAlchemy.

`task_store.py` commits positions and takes leases, `connector_store.py` stores connectors and
events, `job_store.py` jobs and runs, `alert_store.py` alerts, `registrations.py` registrations
of jobs with external schedulers. Out of scope: topic data, threads, and decisions other than
the consistency rules of rows (`rows.py`).
"""

from headrace.store.alert_store import (
    AlertStore,
    Delivery,
    LateRun,
    NewAlert,
    StoredAlert,
)
from headrace.store.backups import (
    BackupNotSupportedError,
    Backups,
    back_up,
    check_not_lost,
    go_on_from_earlier,
    put_back,
    start_empty,
)
from headrace.store.connections import Mode, in_mode
from headrace.store.connector_store import ConnectorStore
from headrace.store.database import Place, memory_database, open_database
from headrace.store.errors import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    JobChangedError,
    JobExistsError,
    JobNotFoundError,
    RunNotFoundError,
    StoreDamagedError,
    StoreMissingError,
    StoreUnavailableError,
    TaskNotFoundError,
    TaskRemovedError,
)
from headrace.store.job_store import JobChange, JobStore, NewRun
from headrace.store.registrations import RegistrationStore
from headrace.store.rows import existing
from headrace.store.server_lease import ServerPlaces
from headrace.store.tables import Name, now
from headrace.store.task_store import Store

__all__ = [
    "AlertStore",
    "BackupNotSupportedError",
    "Backups",
    "ConnectorChangedError",
    "ConnectorExistsError",
    "ConnectorNotFoundError",
    "ConnectorStore",
    "Delivery",
    "JobChange",
    "JobChangedError",
    "JobExistsError",
    "JobNotFoundError",
    "JobStore",
    "LateRun",
    "Mode",
    "Name",
    "NewAlert",
    "NewRun",
    "Place",
    "RegistrationStore",
    "RunNotFoundError",
    "ServerPlaces",
    "Store",
    "StoreDamagedError",
    "StoreMissingError",
    "StoreUnavailableError",
    "StoredAlert",
    "TaskNotFoundError",
    "TaskRemovedError",
    "back_up",
    "check_not_lost",
    "existing",
    "go_on_from_earlier",
    "in_mode",
    "memory_database",
    "now",
    "open_database",
    "put_back",
    "start_empty",
]
