"""Alerts: what a person should know about offline jobs, and the channels that carry it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk.config import Configured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.sdk.config import Config


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Something about an offline job that a person should know.

    It holds no secret and nothing of a record.

    Args:
        id: What it is known by: an alert that is sent again has the same one.
        kind: ``failed``, ``late``, ``empty``, ``balance``, ``duration`` or ``rows``; ``test``
            for one that somebody has asked for.
        at: When it was found; aware.
        job: The job; empty for a test.
        run: The run; of several that are late, the first. None for the job itself.
        subject: What has happened, in one line.
        text: The same with what is known of the run, in lines of plain text.
        details: What the text says, as JSON values by their names.
    """

    id: str
    kind: str
    at: datetime
    job: str
    subject: str
    text: str
    run: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, ``at`` in ISO 8601."""
        return {
            "id": self.id,
            "kind": self.kind,
            "at": self.at.isoformat(),
            "job": self.job,
            "run": self.run,
            "subject": self.subject,
            "text": self.text,
            "details": dict(self.details),
        }


class AlertChannel(Configured, ABC):
    """Carries alerts to people: a log, a web service, e-mail.

    The runtime makes one for each that its settings name, and calls ``configure`` once, then
    ``send`` for each alert, and ``close`` once. After an error it is closed, and another is
    made for the next attempt, with secrets read anew. All calls come from one thread that
    belongs to this channel alone, so it may block; only its own alerts wait meanwhile.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    @abstractmethod
    def configure(self, config: Config) -> None:
        """Get ready. Raises ConfigError if it cannot with this configuration."""

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Hand an alert over; it counts as sent on return.

        Whatever it raises, the alert is sent again later, for a day: after the wait that a
        RetriableError asks for, if it does. The error is logged and shown, so it must hold no
        secret. An alert comes twice, with the same id, where a server dies between sending it
        and writing that down, or where one call takes longer than five minutes.
        """

    def close(self) -> None:
        """Let go of everything. Called once, also when ``configure`` failed."""
