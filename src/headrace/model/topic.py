"""Topics: their names, their retention, the versions that readers need, and name patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from headrace.sdk.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
AGE = "retention.ms"
SIZE = "retention.bytes"
UNREAD = "retention.unread"
"""Kafka's names of a topic's configuration; ``UNREAD`` is Headrace's own."""
_PREFIX = "headrace."
_FOREVER = -1
_LONGEST = timedelta.max // timedelta(milliseconds=1)
_DEFAULT_AGE = timedelta(days=7)


def is_topic_name(name: str) -> bool:
    """Return whether this is a valid topic name: the rule is Kafka's, and fit for folders."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def topic_name_error(name: str, field: str) -> ConfigError:
    """Return the error for an invalid topic name."""
    return ConfigError(
        f"{name!r} is not a valid topic name.",
        field=field,
        fix="Use letters, digits, dots, hyphens and underscores, at most 249 characters.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRetention:
    """How long a topic keeps its rows.

    Args:
        age: Older rows are removed; None for no limit.
        size_bytes: The oldest rows are removed while the topic is larger; None for no limit.
        unread: Whether rows that a sink has yet to read are removed too, as in Kafka.
    """

    age: timedelta | None = _DEFAULT_AGE
    size_bytes: int | None = None
    unread: bool = False

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str | None], default: TopicRetention | None = None
    ) -> TopicRetention:
        """Read the properties of a topic's table; missing ones default to ``default``."""
        made = default or cls()
        millis, size = (properties.get(f"{_PREFIX}{name}") for name in (AGE, SIZE))
        limits = cls.of(_number(millis), _number(size), made)
        unread = properties.get(f"{_PREFIX}{UNREAD}")
        return limits if unread is None else replace(limits, unread=unread == "true")

    @classmethod
    def of(
        cls, millis: int | None, size_bytes: int | None, default: TopicRetention | None = None
    ) -> TopicRetention:
        """Return limits from Kafka's values, where -1 is no limit; None is the default's."""
        made = default or cls()
        if millis is not None:
            # Kafka users also set the largest long for no limit.
            forever = millis == _FOREVER or millis > _LONGEST
            age = None if forever else timedelta(milliseconds=millis)
            made = replace(made, age=age)
        if size_bytes is not None:
            made = replace(made, size_bytes=None if size_bytes == _FOREVER else size_bytes)
        return made

    def changed(
        self, millis: int | None, size_bytes: int | None, *, unread: bool | None
    ) -> TopicRetention:
        """Return a copy with new limits, as ``of`` reads them; None keeps a limit."""
        made = self.of(millis, size_bytes, self)
        return made if unread is None else replace(made, unread=unread)

    def to_properties(self) -> dict[str, str]:
        millis = _FOREVER if self.age is None else self.age // timedelta(milliseconds=1)
        size = _FOREVER if self.size_bytes is None else self.size_bytes
        return {
            f"{_PREFIX}{AGE}": str(millis),
            f"{_PREFIX}{SIZE}": str(size),
            f"{_PREFIX}{UNREAD}": str(self.unread).lower(),
        }

    def require_valid(self) -> None:
        """Raise ConfigError for a limit that would remove all rows."""
        if self.age is not None and self.age <= timedelta():
            raise _too_small(AGE)
        if self.size_bytes is not None and self.size_bytes <= 0:
            raise _too_small(SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The progress of a reader of a topic.

    Args:
        version: The newest version that the reader no longer needs.
        running: Whether a batch of the reader is running, which reads files after the version.
    """

    reader: str
    version: int
    running: bool = False


TopicReaders: TypeAlias = Callable[[str], Sequence[Reading]]
"""Returns the readers of a topic, by its name; raises HeadraceError if they are unknown."""


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _too_small(field: str) -> ConfigError:
    problem = "A topic's retention must be above 0."
    return ConfigError(problem, field=field, fix="Use a number above 0, or -1 for no limit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long events are kept.

    Args:
        states_age: How long state changes are kept.
        states_count: How many state changes are kept for each connector and task, the newest.
        changes_age: How long changes by users are kept; never shorter than ``states_age``.
    """

    states_age: timedelta = timedelta(days=7)
    states_count: int = 1000
    changes_age: timedelta = timedelta(days=365)


def topic_matcher(pattern: str) -> Callable[[str], object]:
    """Return a full-match function for a pattern, which takes time linear in the name's length.

    Python's own engine may take exponential time, and blocks all other threads meanwhile.
    Raises ConfigError if the pattern is not valid, or uses syntax that RE2 does not support.
    """
    import re2  # noqa: PLC0415 - most processes match no patterns

    options = re2.Options()
    options.log_errors = False
    try:
        matcher: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        said = b"".join(error.args).decode(errors="replace")
        raise ConfigError(
            problem=f"Invalid regex: {said}",
            fix="Use RE2 syntax, which is Java's without lookarounds, backreferences and "
            "possessive quantifiers.",
            field="topics.regex",
        ) from error
    return matcher
