"""The errors of stores."""

from __future__ import annotations

from typing import ClassVar

from headrace.sdk.errors import Category, HeadraceError, RetriableError, StaleEpochError


class StoreUnavailableError(RetriableError):
    """The database of the store did not answer."""

    code: ClassVar[str] = "store.unavailable"
    category: ClassVar[Category] = Category.ENVIRONMENT


class StoreMissingError(StoreUnavailableError):
    """The file of the store is missing or was replaced."""

    code: ClassVar[str] = "store.missing"


class StoreDamagedError(HeadraceError):
    """The file of the store cannot be read as a database."""

    code: ClassVar[str] = "store.damaged"
    category: ClassVar[Category] = Category.ENVIRONMENT


class TaskRemovedError(StaleEpochError):
    """The task was removed with its connector."""

    code: ClassVar[str] = "task.removed"


class ConnectorExistsError(HeadraceError):
    """A connector with that name already exists."""

    code: ClassVar[str] = "connector.exists"
    category: ClassVar[Category] = Category.CONFIG


class ConnectorNotFoundError(HeadraceError):
    """There is no connector with that name."""

    code: ClassVar[str] = "connector.not_found"
    category: ClassVar[Category] = Category.CONFIG


class ConnectorChangedError(HeadraceError):
    """The connector was changed concurrently."""

    code: ClassVar[str] = "connector.changed"
    category: ClassVar[Category] = Category.RUN


class TaskNotFoundError(HeadraceError):
    """The connector has no task with that number."""

    code: ClassVar[str] = "task.not_found"
    category: ClassVar[Category] = Category.CONFIG


class JobExistsError(HeadraceError):
    """A job with that name already exists."""

    code: ClassVar[str] = "job.exists"
    category: ClassVar[Category] = Category.CONFIG


class JobNotFoundError(HeadraceError):
    """There is no job with that name."""

    code: ClassVar[str] = "job.not_found"
    category: ClassVar[Category] = Category.CONFIG


class JobChangedError(HeadraceError):
    """The state of the job or run does not allow the operation, or has changed concurrently."""

    code: ClassVar[str] = "job.changed"
    category: ClassVar[Category] = Category.RUN


class RunNotFoundError(HeadraceError):
    """There is no run with that number."""

    code: ClassVar[str] = "run.not_found"
    category: ClassVar[Category] = Category.CONFIG
