"""All APIs of a server, on one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.rest.connect import connect_app
from headrace.rest.v1 import PREFIX, v1_app

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.control import Connectors, Health
    from headrace.rest.door import Door
    from headrace.rest.v1 import Workbench


def server_app(
    connectors: Connectors, bench: Workbench, door: Door, health: Health | None = None
) -> ASGIApp:
    """Return the APIs over an installation's connectors, behind a door.

    Kafka Connect's has the root, as its clients expect; ours begins with ``/v1``.
    """
    return ByPrefix(
        {PREFIX: v1_app(connectors, bench, door)}, connect_app(connectors, door, health)
    )


class ByPrefix:
    """Hands each request to the application that its path begins with; paths stay whole."""

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        """Stand before applications by prefix, and one for all other paths."""
        self._apps = apps
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = f"{scope.get('path', '')}/"
        found = (app for prefix, app in self._apps.items() if path.startswith(f"{prefix}/"))
        await next(found, self._others)(scope, receive, send)
