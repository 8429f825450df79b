"""Which offsets a topic has, and which of them it had at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace.topics.reader import version_before

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.topics.catalog import Topics
    from headrace.topics.topic import Topic

__all__ = ["TopicPlaces"]


class TopicPlaces:
    """Knows the places in topics. Any thread may use it."""

    def __init__(self, topics: Topics) -> None:
        """Look into these topics."""
        self._topics = topics

    def check(self, name: str, version: int) -> None:
        """Raise ConfigError where a reader could not stand behind a version of a topic.

        Behind its newest version it would pass over what comes next; before those that
        retention has removed it would fail.
        """
        topic = self._existing(name)
        first, newest = topic.first(), topic.log.newest()
        if not first - 1 <= version <= newest:
            problem = (
                f"Topic {name} has the offsets {first} to {newest}: a reader of it may stand "
                f"at {first} to {newest + 1}, not at {version + 1}."
            )
            raise ConfigError(problem, field="offset", fix="Choose one of these.")

    def before(self, name: str, time: datetime) -> int:
        """Return the newest version of a topic from before a time; before the first if none.

        Raises ConfigError for a topic that is not there.
        """
        return version_before(self._existing(name), time)

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if not topic.exists():
            problem = f"There is no topic {name}."
            raise ConfigError(problem, field="partition", fix="Name one that is there.")
        return topic
