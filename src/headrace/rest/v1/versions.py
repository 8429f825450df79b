"""Earlier states: the configurations that a connector has had, and backups of the store."""

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
    """When a connector was given a configuration, and by whom."""

    version: int
    at: datetime
    by: str
    changed: list[str] = Field(description="The keys that it changed, by name.")


class VersionDetail(Shown):
    """A configuration that a connector has or had."""

    version: int
    at: datetime
    by: str
    config: dict[str, str]


class Change(Shown):
    """A key that differs; null where a configuration does not have it."""

    key: str
    before: str | None
    after: str | None


class Diff(BaseModel):
    """What differs between two configurations of a connector."""

    before: int
    after: int
    changes: list[Change] = Field(description="By key; none if they are the same.")


class DiffQuery(BaseModel):
    """Which two."""

    model_config = ConfigDict(extra="forbid")

    before: int = Field(ge=1, le=_MOST)
    after: int = Field(ge=1, le=_MOST)


class Restored(BaseModel):
    """What a connector has now."""

    name: str
    version: int = Field(description="The number of its configuration now.")
    restored: int = Field(description="The number of the one that it equals.")


def version_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connectors/{name}/versions", tags=["configurations"])
    versions = ConfigVersions(connectors)

    @router.get("", summary="List a connector's configurations", responses=problems(404))
    def list_versions(name: Encoded) -> list[VersionSummary]:
        """Answer with the newest first."""
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
        "/{number}/restore", summary="Go back to a configuration", responses=problems(404)
    )
    def restore(name: Encoded, number: Number, request: Request) -> Restored:
        """Give a connector a configuration that it has had, as its next version."""
        now = versions.restore(name, number, caller(request))
        return Restored(name=name, version=now.version, restored=number)

    return router


class BackupShown(Shown):
    """A copy of the store, as it was at one moment."""

    file: Annotated[str, BeforeValidator(str)] = Field(
        description="Where it is, on the server's machine."
    )
    size_bytes: int
    at: datetime


def backup_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/store/backups", tags=["store"])
    backups = bench.backups

    @router.get("", summary="List backups of the store")
    def list_backups() -> list[BackupShown]:
        """Answer with the newest first."""
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
