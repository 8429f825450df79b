"""What is being done about connectors, about each by itself."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from headrace.store import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model import Connector

T = TypeVar("T")
Work: TypeAlias = Generator[bool, None, T]
"""Work that stops where it has to wait, and goes on when it is asked for its next value.

It gives whether it may be left there for good, as newer work makes it needless.
"""
log = structlog.get_logger(__name__)


@dataclass
class _Settlement:
    """Work on a connector as it was wanted when that began."""

    wanted: Connector
    work: Work[None]
    failed: Callable[[], None]
    may_be_left: bool = False


@dataclass
class Settlements:
    """Work on connectors, at most one on each: where one waits, others go on.

    One thread uses it, so that the work on all of them needs no locks.
    """

    _under_way: dict[str, _Settlement] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        """Return whether something is being done about a connector."""
        return name in self._under_way

    def __len__(self) -> int:
        """Return about how many connectors something is being done."""
        return len(self._under_way)

    def begin(self, wanted: Connector, work: Work[None], failed: Callable[[], None]) -> None:
        """Do work up to where it waits. ``failed`` is called if it raises, then or later."""
        self._under_way[wanted.name] = _Settlement(wanted, work, failed)
        self._go_on(wanted.name)

    def go_on(self) -> None:
        """Do all work up to where it waits again. Raises StoreUnavailableError."""
        for name in list(self._under_way):
            self._go_on(name)

    def leave(self, name: str, wanted: Connector | None) -> None:
        """Leave what is needless now that a connector is wanted as this, if that can be."""
        now = self._under_way[name]
        if now.may_be_left and (wanted is None or _aim(wanted) != _aim(now.wanted)):
            del self._under_way[name]
            now.work.close()

    def leave_all(self) -> None:
        """Leave everything."""
        while self._under_way:
            self._under_way.popitem()[1].work.close()

    def _go_on(self, name: str) -> None:
        now = self._under_way[name]
        try:
            with bound_contextvars(connector=name):
                now.may_be_left = next(now.work)
        except StopIteration:
            del self._under_way[name]
        except StoreUnavailableError:
            del self._under_way[name]
            now.failed()
            raise
        except Exception:
            # The others are settled all the same, and this one is tried again.
            log.exception("connector could not be settled", connector=name)
            del self._under_way[name]
            now.failed()


def _aim(wanted: Connector) -> object:
    return wanted.uid, wanted.version, wanted.target, wanted.restarts
