"""What the offsets of sinks are checked against: the topics that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["AnyPlace", "Places"]


class Places(Protocol):
    """Knows which versions topics have. Any thread may use it."""

    def check(self, name: str, version: int) -> None:
        """Raise ConfigError where a reader could not stand behind a version of a topic."""

    def before(self, name: str, time: datetime) -> int:
        """Return the newest version of a topic from before a time. Raises ConfigError."""


class AnyPlace:
    """Takes any place, where no topics can be looked into."""

    def check(self, name: str, version: int) -> None:
        """See Places."""

    def before(self, name: str, time: datetime) -> int:
        problem = f"It is not known what topic {name} held at {time.isoformat()}."
        raise ConfigError(problem, field="to", fix="Alter the offsets instead.")
