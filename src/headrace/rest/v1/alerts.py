"""Alerts about jobs, and tests of the channels that they are sent by."""

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
    """How an alert goes to one channel."""

    channel: str
    state: DeliveryState
    attempts: int
    due: datetime = Field(description="When the next attempt comes, while it waits.")
    ended: datetime | None = Field(description="When it was sent or given up.")
    error: str | None = Field(description="Why the newest attempt has failed.")


class AlertShown(BaseModel):
    """Something about a job that a person should know."""

    number: int = Field(description="Grows with time.")
    id: str = Field(description="What receivers know it by.")
    kind: AlertKind
    at: datetime
    job: str
    run: int | None = Field(
        description="Null for one about the job itself; of several that are late, the first."
    )
    subject: str
    text: str
    details: dict[str, Any] = Field(description="What the text says, as values.")
    deliveries: list[DeliveryShown] = Field(description="Its ways to the channels.")

    @classmethod
    def of(cls, found: StoredAlert) -> Self:
        shown = found.alert.to_json()
        deliveries = DeliveryShown.all(found.deliveries)
        return cls.model_validate({**shown, "number": found.number, "deliveries": deliveries})


class AlertPage(BaseModel):
    """Some alerts, the newest first."""

    items: list[AlertShown]
    next: int | None = Field(description="The `before` of the next page; null on the last.")


class AlertQuery(BaseModel):
    """Which alerts, and which page of them."""

    model_config = ConfigDict(extra="forbid")

    job: Storable | None = Field(
        default=None, description="Only those about one job, which may be deleted."
    )
    before: int | None = Field(
        default=None, ge=1, le=_MOST, description="Only those before this number."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class ChannelTest(Shown):
    """What became of a test alert."""

    channel: str
    type: str = Field(description="The plugin that the settings name.")
    error: str | None = Field(description="Why it was not sent; null where it was.")


def alert_routes(bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/alerts", tags=["jobs"])

    @router.get("", summary="List alerts")
    def list_alerts(asked: Annotated[AlertQuery, Query()]) -> AlertPage:
        """Tell about what jobs have alerted, and whom it has reached."""
        found = bench.alerting.alerts(asked.job, before=asked.before, limit=asked.limit + 1)
        page = [AlertShown.of(each) for each in found[: asked.limit]]
        return AlertPage(items=page, next=page[-1].number if len(found) > len(page) else None)

    @router.post("/test", summary="Test channels", dependencies=[Depends(bench.slots)])
    def test(request: Request) -> list[ChannelTest]:
        """Send a test alert by each channel of the settings, and wait for what becomes of it.

        It takes as long as the slowest of them, up to 25 seconds.
        """
        return ChannelTest.all(bench.alerting.test(caller(request)))

    return router
