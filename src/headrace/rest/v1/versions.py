"""Configuration versions of connectors, and backups of the store."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headrace.control import ConfigVersions, Connectors
from headrace.model import EventKind
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.trials import Workbench

_MOST = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=_MOST, description="The number, from 1.")]


class VersionSummary(BaseModel):
    """When a configuration version was created, and by whom."""

    version: int
    at: datetime
    by: str
    changed: list[str] = Field(description="The changed keys, by name.")


class VersionDetail(Shown):
    """A current or earlier configuration of a connector."""

    version: int
    at: datetime
    by: str
    config: dict[str, str]


class Change(Shown):
    """A key that differs; null if a configuration does not contain it."""

    key: str
    before: str | None
    after: str | None


class Diff(BaseModel):
    """The differences between two configurations of a connector."""

    before: int
    after: int
    changes: list[Change] = Field(description="By key; empty if they are equal.")


class DiffQuery(BaseModel):
    """The two versions to compare."""

    model_config = ConfigDict(extra="forbid")

    before: int = Field(ge=1, le=_MOST)
    after: int = Field(ge=1, le=_MOST)


class Restored(BaseModel):
    """The result of a restore."""

    name: str
    version: int = Field(description="The number of the new version.")
    restored: int = Field(description="The number of the restored version.")


def version_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connectors/{name}/versions", tags=["configurations"])
    versions = ConfigVersions(connectors)

    @router.get("", summary="List a connector's configurations", responses=problems(404))
    def list_versions(name: Encoded) -> list[VersionSummary]:
        """Return the newest first."""
        return [
            VersionSummary(version=each.version, at=each.at, by=each.by, changed=changed)
            for each, changed in versions.steps(name)
        ]

    @router.get("/diff", summary="Compare two configurations", responses=problems(404))
    def diff(name: Encoded, asked: Annotated[DiffQuery, Query()]) -> Diff:
        changes = versions.changes(name, asked.before, asked.after)
        return Diff(before=asked.before, after=asked.after, changes=Change.all(changes))

    @router.get("/{number}", summary="Show a configuration", responses=problems(404))
    def show(name: Encoded, number: Number) -> VersionDetail:
        return VersionDetail.of(versions.get(name, number))

    @router.post(
        "/{number}/restore", summary="Restore a configuration", responses=problems(404)
    )
    def restore(name: Encoded, number: Number, request: Request) -> Restored:
        """Restore an earlier configuration of a connector, as a new version."""
        now = versions.restore(name, number, caller(request))
        return Restored(name=name, version=now.version, restored=number)

    return router


class BackupShown(Shown):
    """A consistent copy of the store."""

    file: Annotated[str, BeforeValidator(str)] = Field(
        description="The path on the server's machine."
    )
    size_bytes: int
    at: datetime


def backup_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/store/backups", tags=["store"])
    backups = bench.backups

    @router.get("", summary="List backups of the store")
    def list_backups() -> list[BackupShown]:
        """Return the newest first."""
        return BackupShown.all(backups.all())

    @router.post(
        "",
        status_code=201,
        summary="Back up the store",
        responses=problems(409),
        dependencies=[Depends(bench.slots)],
    )
    def back_up(request: Request) -> BackupShown:
        """Copy the store to a file in the home folder, while it is in use.

        The copy contains connectors, positions, batches, events and registered schemas, but not
        the data of topics. Rejected for a store in PostgreSQL, which has its own backup tools.

        The setting ``store_backups_kept`` limits the number of backups; older ones are deleted.
        """
        made = backups.make()
        detail = {"file": str(made.file), "size_bytes": made.size_bytes}
        connectors.record_event(EventKind.BACKUP, caller(request), detail)
        return BackupShown.of(made)

    return router
