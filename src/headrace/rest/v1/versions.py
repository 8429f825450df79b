"""The configurations that a connector has had: what changed, and the way back."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import ConfigChange, ConfigVersions, Connectors
from headrace.model import ConfigVersion
from headrace.rest.guard import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import problems

_MOST = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=_MOST, description="The number, from 1.")]


class VersionSummary(BaseModel):
    """When a connector was given a configuration, and by whom."""

    version: int
    at: datetime
    by: str
    changed: list[str] = Field(description="The keys that it changed, by name.")


class VersionDetail(BaseModel):
    """A configuration that a connector has or had."""

    version: int
    at: datetime
    by: str
    config: dict[str, str]

    @classmethod
    def of(cls, found: ConfigVersion) -> Self:
        """Show a configuration."""
        return cls(version=found.version, at=found.at, by=found.by, config=dict(found.config))


class Change(BaseModel):
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
        return Diff(
            before=asked.before,
            after=asked.after,
            changes=[_change(each) for each in changes],
        )

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


def _change(change: ConfigChange) -> Change:
    return Change(key=change.key, before=change.before, after=change.after)
