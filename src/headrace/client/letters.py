"""Dead letters of a server: records that were rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.asking import Asking, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

__all__ = ["LetterChoice", "Letters"]

_REPAIRED = ("id", "key", "value", "headers")
"""What the server takes of a letter that was repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """Which dead letters; what is None does not matter.

    Args:
        connector: The connector that rejected them.
        stage: Kafka Connect's name of the stage.
        exception: The class of the error, with or without its package.
        since: Rejected by batches that began then or later; aware.
        until: Rejected by batches that began before; aware.
        ids: The letters themselves; none for any.
    """

    connector: str | None = None
    stage: str | None = None
    exception: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as a server reads it."""
        times = {"since": self.since, "until": self.until}
        told = {name: time and time.isoformat() for name, time in times.items()}
        told |= {"connector": self.connector, "stage": self.stage, "exception": self.exception}
        ids = {"id": list(self.ids)} if self.ids else {}
        return {**{name: each for name, each in told.items() if each is not None}, **ids}


class Letters(Asking):
    """The part of a client that looks after dead letters."""

    def letter_groups(self, chosen: LetterChoice) -> list[dict[str, Any]]:
        """Return how many letters are open, by topic, connector and cause."""
        return list(self.http.send("GET", "/v1/dead-letters", query=chosen.to_json()))

    def letters(
        self, topic: str, chosen: LetterChoice, *, limit: int = 20
    ) -> list[dict[str, Any]]:
        """Return the open letters of a topic, the oldest first, at most 1000."""
        query = {**chosen.to_json(), "limit": str(limit)}
        return list(self.http.send("GET", _path(topic), query=query))

    def discard_letters(self, topic: str, chosen: LetterChoice, *, every: bool = False) -> int:
        """Close letters; the topic keeps them. Return how many.

        Without a choice all are meant, and ``every`` has to say so.
        """
        body = {**chosen.to_json(), **({"all": True} if every else {})}
        told = self.http.send("POST", f"{_path(topic)}/discard", body=body)
        return int(told["discarded"])

    def replay_letters(
        self,
        name: str,
        chosen: LetterChoice,
        repaired: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Send letters through their connector's chain to its sinks again, each once.

        Returns when that is done, with how many there were of each kind, and the ``error`` that
        ended it early. With ``repaired`` only those go, as they are there; of each the id is
        needed, and a key, a value or headers that it has not stay as they are.
        """
        body = chosen.to_json()
        if repaired is not None:
            body["repaired"] = [
                {part: each[part] for part in _REPAIRED if part in each} for each in repaired
            ]
        path = f"/v1{path_of(name)}/dead-letters/replay"
        return dict(self.of_connector(name, "POST", path, body))


def _path(topic: str) -> str:
    return f"/v1/dead-letters/{quote(topic, safe='')}"
