"""Backups of the store."""

from datetime import datetime
from typing import Self

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from headrace.control import Backup, Connectors
from headrace.model import EventKind
from headrace.rest.guard import caller
from headrace.rest.v1.problems import problems
from headrace.rest.v1.workbench import Workbench


class BackupShown(BaseModel):
    """A copy of the store, as it was at one moment."""

    file: str = Field(description="Where it is, on the server's machine.")
    size_bytes: int
    at: datetime

    @classmethod
    def of(cls, backup: Backup) -> Self:
        """Show a backup."""
        return cls(file=str(backup.file), size_bytes=backup.size_bytes, at=backup.at)


def backup_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/store/backups", tags=["store"])
    backups = bench.backups

    @router.get("", summary="List backups of the store")
    def list_backups() -> list[BackupShown]:
        """Answer with the newest first."""
        return [BackupShown.of(each) for each in backups.all()]

    @router.post(
        "",
        status_code=201,
        summary="Back up the store",
        responses=problems(409),
        dependencies=[Depends(bench.slots)],
    )
    def back_up(request: Request) -> BackupShown:
        """Copy the store to a file in the home folder, while it is in use.

        Connectors, positions, batches, events and registered schemas are in it; the data of
        topics is not. A store in PostgreSQL is refused: that has a tool of its own.

        Of the backups there the newest are kept, as many as the setting ``store_backups_kept``
        says; the others are removed.
        """
        made = backups.make()
        detail = {"file": str(made.file), "size_bytes": made.size_bytes}
        connectors.record_event(EventKind.BACKUP, caller(request), detail)
        return BackupShown.of(made)

    return router
