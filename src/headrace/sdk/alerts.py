"""Alerts about offline jobs, and the channels that send them."""

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
    """An alert about an offline job.

    It must contain no secrets and no record data.

    Args:
        id: Identifies the alert; the same if it is sent again.
        kind: ``failed``, ``late``, ``empty``, ``balance``, ``duration`` or ``rows``; ``test``
            for a test alert that a user requested.
        at: When the problem was detected; an aware datetime.
        job: The job; empty for a test.
        run: The run; the first if several are late. None if the alert is about the job itself.
        subject: What happened, in one line.
        text: The subject and details of the run, as lines of plain text.
        details: The content of the text as JSON values by name.
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
        """Return the alert as JSON values, ``at`` in ISO 8601."""
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
    """Sends alerts to users: to a log, a web service, by e-mail.

    The runtime creates one for each channel in its settings, and calls ``configure`` once, then
    ``send`` for each alert, and ``close`` once. After an error the channel is closed, and a new
    one is created for the next attempt, with secrets resolved again. All calls come from a
    thread of this channel alone, so it may block; only its own alerts wait in that time.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    @abstractmethod
    def configure(self, config: Config) -> None:
        """Initialize. Raises ConfigError if the configuration is not usable."""

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Send an alert; it counts as sent when the method returns.

        After any exception the alert is retried later, for up to a day, and not before the wait
        of a RetriableError. The error is logged and shown, so it must contain no secrets. An
        alert is sent twice, with the same id, if a server dies after sending it and before
        recording that, or if a call takes longer than five minutes.
        """

    def close(self) -> None:
        """Release all resources. Called once, also if ``configure`` failed."""
