"""Errors of repeated work, each logged once instead of at every attempt."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from headrace.sdk import HeadraceError

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 60.0
"""How often a persistent error is logged."""


@dataclass
class RepeatedErrors:
    """Logs the errors of one loop: at the first error, then once a minute, and at recovery.

    Args:
        event: The log event of an error.
        over: The log event of the recovery.
        plain: The errors logged with their message; all others are logged with a traceback.
        about: Fields logged with each event.
    """

    event: str
    over: str
    plain: tuple[type[Exception], ...] = (HeadraceError,)
    about: Mapping[str, str] = field(default_factory=dict)
    _logged: str = ""
    _until: float = 0.0

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Catch and log an exception, unless it was just logged."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed
            self.failed(error)
        else:
            self.ended()

    def ended(self) -> None:
        """Log the recovery, if the previous attempt failed."""
        if self._logged:
            log.info(self.over, **self.about)
            self._logged = ""

    def failed(self, error: Exception) -> None:
        """Log an error, unless it was just logged."""
        why, now = f"{type(error).__name__}: {error}", time.monotonic()
        if why == self._logged and now < self._until:
            return
        self._logged, self._until = why, now + _AGAIN_SECONDS
        if isinstance(error, self.plain):
            log.warning(self.event, why=str(error), **self.about)
        else:
            log.error(self.event, exc_info=error, **self.about)
