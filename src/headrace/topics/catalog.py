"""The topics in a folder, by name."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from headrace.sdk.topicname import is_topic_name, topic_name_error
from headrace.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sdk.location import Location

JOURNALS = "~captures"
"""The folder of captures' journals; "~" is not allowed in the name of a topic."""
JOURNAL = "~journal"


class Topics:
    """Every topic below one folder. Safe to use from many threads."""

    def __init__(self, folder: Location) -> None:
        """Keep topics in ``folder``, made when the first topic is."""
        self._folder = folder
        self._topics: dict[str, Topic] = {}
        self._journals: dict[Location, Topic] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Topic:
        """Return the topic ``name``, which need not exist yet."""
        if not is_topic_name(name):
            raise topic_name_error(name, "topic")
        with self._lock:
            if name not in self._topics:
                self._topics[name] = Topic(name, self._folder / name)
            return self._topics[name]

    def find(self, name: str) -> Topic | None:
        """Return the topic ``name``; None where it does not exist, or cannot."""
        # Nothing is kept of a name that is only asked for.
        if not is_topic_name(name) or not Topic(name, self._folder / name).exists():
            return None
        return self.get(name)

    @property
    def staging(self) -> Location:
        """Return a folder beside the topics, to divide batches in that go to several."""
        return self._folder / "~divided"

    @property
    def upkeep_clock(self) -> Location:
        """Return the file in which upkeep notes which time it has believed."""
        return self._folder / "~upkeep" / "clock.json"

    def list(self) -> Sequence[Topic]:
        """Return the topics that exist, sorted by name."""
        found = [entry.name for entry in self._folder.list() if entry.is_folder]
        names = sorted(name for name in found if is_topic_name(name))
        return [topic for name in names if (topic := self.get(name)).exists()]

    def journals(self) -> Sequence[Topic]:
        """Return the captures' journals, tables beside the topics that nobody reads."""
        folders = (entry.location for entry in (self._folder / JOURNALS).list())
        with self._lock:
            for folder in sorted(folders, key=str):
                if folder not in self._journals:
                    journal = Topic(JOURNAL, folder)
                    if journal.exists():
                        self._journals[folder] = journal
            return tuple(self._journals.values())

    def matching(self, pattern: str) -> Sequence[Topic]:
        """Return the existing topics whose whole name matches a regular expression."""
        return [topic for topic in self.list() if re.fullmatch(pattern, topic.name)]
