"""The errors of what is done again and again, each reported once and not at every turn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from headrace.sdk import HeadraceError

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 60.0
"""How often an error that stays is reported."""


@dataclass
class RepeatedErrors:
    """Tells the errors of one loop: when they come, once a minute, and when they are over.

    Args:
        plain: What is reported in words; any other error is reported with its traceback.
        about: What is reported with each.
    """

    event: str
    over: str
    plain: tuple[type[Exception], ...] = (HeadraceError,)
    about: Mapping[str, str] = field(default_factory=dict)
    _logged: str = ""
    _until: float = 0.0

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Tell what is raised within, unless it was just reported, and raise it no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the next turn may go well
            self.failed(error)
        else:
            self.ended()

    def ended(self) -> None:
        """Tell that it can be done again, if it could not before."""
        if self._logged:
            log.info(self.over, **self.about)
            self._logged = ""

    def failed(self, error: Exception) -> None:
        """Report an error, unless it was just reported."""
        why, now = f"{type(error).__name__}: {error}", time.monotonic()
        if why == self._logged and now < self._until:
            return
        self._logged, self._until = why, now + _AGAIN_SECONDS
        if isinstance(error, self.plain):
            log.warning(self.event, why=str(error), **self.about)
        else:
            log.error(self.event, exc_info=error, **self.about)
