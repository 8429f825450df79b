"""Ends connections that keep a server waiting, and bounds how many there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

__all__ = ["ConnectionLimits"]


@dataclass(frozen=True)
class ConnectionLimits:
    """How long a connection may keep a server waiting, and how many there may be.

    Args:
        head_seconds: How long the head of a request may take to arrive.
        total: How many connections are open at once.
        of_address: How many of these are of one address.
    """

    head_seconds: float = 10
    total: int = 1000
    of_address: int = 200
    _open: Counter[str] = field(default_factory=Counter, init=False)

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return what serves a connection within these limits."""
        limits = self

        class Bounded(_Bounded):
            """A connection of this server."""

        Bounded.limits = limits
        return Bounded

    def take(self, address: str) -> bool:
        """Count a connection; return whether it may stay."""
        self._open[address] += 1
        return self._open[address] <= self.of_address and self._open.total() <= self.total

    def give_back(self, address: str) -> None:
        """Count a connection no more."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class _Bounded(H11Protocol):
    """Ends a connection whose requests do not arrive in time ("slowloris")."""

    limits: ConnectionLimits
    _address: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = "" if self.client is None else self.client[0]
        if not self.limits.take(self._address):
            transport.abort()
            return
        self._wait()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._serves():
            self._wait_no_more()  # its head is there; whoever reads the body bounds that
        elif self._deadline is None:
            self._wait()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Nothing is owed until the next request begins; uvicorn ends what stays idle.
        if not self._serves():
            self._wait_no_more()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        if self._address is not None:
            self.limits.give_back(self._address)
            self._address = None
        super().connection_lost(exc)

    def _serves(self) -> bool:
        """Return whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.limits.head_seconds, self._end)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._deadline = None
        if not self._serves():
            self.transport.abort()
