"""The topics in a folder, by name."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from headrace.sdk.topicname import is_topic_name, topic_name_error
from headrace.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

JOURNALS = "~captures"
"""The folder of captures' journals; "~" is not allowed in the name of a topic."""
JOURNAL = "~journal"


class Topics:
    """Every topic below one folder. Safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        """Keep topics in ``folder``, made when the first topic is."""
        self._folder = folder
        self._topics: dict[str, Topic] = {}
        self._journals: dict[Path, Topic] = {}
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
    def staging(self) -> Path:
        """Return a folder beside the topics, to divide batches in that go to several."""
        return self._folder / "~divided"

    @property
    def upkeep_clock(self) -> Path:
        """Return the file in which upkeep notes which time it has believed."""
        return self._folder / "~upkeep" / "clock.json"

    def list(self) -> Sequence[Topic]:
        """Return the topics that exist, sorted by name."""
        if not self._folder.exists():
            return []
        # Whatever else lies there, such as a file, is no topic.
        found = [path for path in self._folder.iterdir() if path.is_dir()]
        names = sorted(path.name for path in found if is_topic_name(path.name))
        return [topic for name in names if (topic := self.get(name)).exists()]

    def journals(self) -> Sequence[Topic]:
        """Return the captures' journals, tables beside the topics that nobody reads."""
        paths = sorted((self._folder / JOURNALS).glob("*/_delta_log"))
        with self._lock:
            for path in (log.parent for log in paths):
                self._journals.setdefault(path, Topic(JOURNAL, path))
            return tuple(self._journals.values())

    def matching(self, pattern: str) -> Sequence[Topic]:
        """Return the existing topics whose whole name matches a regular expression."""
        return [topic for topic in self.list() if re.fullmatch(pattern, topic.name)]
