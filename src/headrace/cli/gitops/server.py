"""A server's connectors, as files would describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.gitops.plan import There
from headrace.control import Served

if TYPE_CHECKING:
    from headrace.client import Client

_RUNNING = "RUNNING"


def there_on(client: Client) -> dict[str, There]:
    """Return what a server has, by name."""
    targets = client.targets()
    return {
        name: There(dict(info.config), targets[name])
        for name, info in client.infos().items()
        if name in targets
    }


def described_on(client: Client) -> dict[str, Served]:
    """Return the same as files describe it: one that runs, or should, says nothing of that."""
    return {
        name: Served(
            name=name,
            config=each.config,
            state=None if each.state == _RUNNING else each.state,
        )
        for name, each in there_on(client).items()
    }
