"""Alerts about jobs, and tests of their channels."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.model import AlertKind, DeliveryState
from headrace.rest.auth import caller
from headrace.rest.v1.events import Storable
from headrace.rest.v1.problems import Shown
from headrace.rest.v1.trials import Workbench
from headrace.store import StoredAlert

_MOST = 2**63 - 1


class DeliveryShown(Shown):
    """The delivery of an alert to one channel."""

    channel: str
    state: DeliveryState
    attempts: int
    due: datetime = Field(description="When the next attempt is due, if it is waiting.")
    ended: datetime | None = Field(description="When it was sent or given up.")
    error: str | None = Field(description="Why the newest attempt failed.")


class AlertShown(BaseModel):
    """An alert about a job."""

    number: int = Field(description="Increases with time.")
    id: str = Field(description="The id that receivers get.")
    kind: AlertKind
    at: datetime
    job: str
    run: int | None = Field(
        description="Null if the alert is about the job itself; the first of several late runs."
    )
    subject: str
    text: str
    details: dict[str, Any] = Field(description="The contents of the text, as values.")
    deliveries: list[DeliveryShown] = Field(description="Its deliveries, by channel.")

    @classmethod
    def of(cls, found: StoredAlert) -> Self:
        shown = found.alert.to_json()
        deliveries = DeliveryShown.all(found.deliveries)
        return cls.model_validate({**shown, "number": found.number, "deliveries": deliveries})


class AlertPage(BaseModel):
    """A page of alerts, newest first."""

    items: list[AlertShown]
    next: int | None = Field(description="The `before` of the next page; null on the last.")


class AlertQuery(BaseModel):
    """A filter of alerts, and the page."""

    model_config = ConfigDict(extra="forbid")

    job: Storable | None = Field(
        default=None, description="Only alerts about this job, which may be deleted."
    )
    before: int | None = Field(
        default=None, ge=1, le=_MOST, description="Only alerts before this number."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class ChannelTest(Shown):
    """The result of a test alert."""

    channel: str
    type: str = Field(description="The plugin of the channel.")
    error: str | None = Field(description="Why it was not sent; null if it was sent.")


def alert_routes(bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/alerts", tags=["jobs"])

    @router.get("", summary="List alerts")
    def list_alerts(asked: Annotated[AlertQuery, Query()]) -> AlertPage:
        """Return the alerts about jobs and their deliveries."""
        found = bench.alerting.alerts(asked.job, before=asked.before, limit=asked.limit + 1)
        page = [AlertShown.of(each) for each in found[: asked.limit]]
        return AlertPage(items=page, next=page[-1].number if len(found) > len(page) else None)

    @router.post("/test", summary="Test channels", dependencies=[Depends(bench.slots)])
    def test(request: Request) -> list[ChannelTest]:
        """Send a test alert by each configured channel and return the results.

        Takes as long as the slowest channel, up to 25 seconds.
        """
        return ChannelTest.all(bench.alerting.test(caller(request)))

    return router
