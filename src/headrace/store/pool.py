"""The connections of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import QueuePool
from sqlalchemy.exc import TimeoutError as NoneFreeError
from typing_extensions import override

from headrace.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection


class StorePool(QueuePool):
    """Says that the store is not to be had when all connections are in use for too long."""

    @override
    def connect(self) -> PoolProxiedConnection:
        """Return a connection. Raises StoreUnavailableError."""
        try:
            return super().connect()
        except NoneFreeError as error:
            problem = "The store did not answer: all connections to it are in use."
            raise StoreUnavailableError(problem) from error
