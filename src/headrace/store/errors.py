"""What can go wrong with a store by itself."""

from __future__ import annotations

from typing import ClassVar

from headrace.sdk.errors import Category, HeadraceError, RetriableError, StaleEpochError


class StoreUnavailableError(RetriableError):
    """The database of the store did not answer."""

    code: ClassVar[str] = "store.unavailable"
    category: ClassVar[Category] = Category.ENVIRONMENT


class StoreMissingError(StoreUnavailableError):
    """The file of the store is gone, or is another one."""

    code: ClassVar[str] = "store.missing"


class StoreDamagedError(HeadraceError):
    """The file of the store cannot be read as a database."""

    code: ClassVar[str] = "store.damaged"
    category: ClassVar[Category] = Category.ENVIRONMENT


class TaskRemovedError(StaleEpochError):
    """The task was removed with its connector."""

    code: ClassVar[str] = "task.removed"


class ConnectorExistsError(HeadraceError):
    """There is a connector of that name."""

    code: ClassVar[str] = "connector.exists"
    category: ClassVar[Category] = Category.CONFIG


class ConnectorNotFoundError(HeadraceError):
    """There is no connector of that name."""

    code: ClassVar[str] = "connector.not_found"
    category: ClassVar[Category] = Category.CONFIG


class ConnectorChangedError(HeadraceError):
    """The connector is not any more as it was when the change was thought of."""

    code: ClassVar[str] = "connector.changed"
    category: ClassVar[Category] = Category.RUN


class TaskNotFoundError(HeadraceError):
    """The connector has no task of that number."""

    code: ClassVar[str] = "task.not_found"
    category: ClassVar[Category] = Category.CONFIG


class JobExistsError(HeadraceError):
    """There is a job of that name."""

    code: ClassVar[str] = "job.exists"
    category: ClassVar[Category] = Category.CONFIG


class JobNotFoundError(HeadraceError):
    """There is no job of that name."""

    code: ClassVar[str] = "job.not_found"
    category: ClassVar[Category] = Category.CONFIG


class JobChangedError(HeadraceError):
    """The job, or its run, is not any more as it was when the change was thought of."""

    code: ClassVar[str] = "job.changed"
    category: ClassVar[Category] = Category.RUN


class RunNotFoundError(HeadraceError):
    """There is no run of that number."""

    code: ClassVar[str] = "run.not_found"
    category: ClassVar[Category] = Category.CONFIG
