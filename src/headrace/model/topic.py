"""How long a topic keeps its rows, where its readers stand, and which names a pattern has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from headrace.sdk.errors import ConfigError

AGE = "retention.ms"
SIZE = "retention.bytes"
UNREAD = "retention.unread"
"""Kafka's names for a topic's configuration, and one that Kafka has no need of."""
_PREFIX = "headrace."
_FOREVER = -1
_LONGEST = timedelta.max // timedelta(milliseconds=1)
_DEFAULT_AGE = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRetention:
    """How long a topic keeps its rows.

    Args:
        age: Rows are removed when they are older; None keeps them for ever.
        size_bytes: The oldest rows are removed while the topic is larger; None: any size.
        unread: Whether rows are removed, as in Kafka, that a sink has yet to read.
    """

    age: timedelta | None = _DEFAULT_AGE
    size_bytes: int | None = None
    unread: bool = False

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str | None], default: TopicRetention | None = None
    ) -> TopicRetention:
        """Read the properties of a topic's table; what they do not say is ``default``'s."""
        made = default or cls()
        millis, size = (properties.get(f"{_PREFIX}{name}") for name in (AGE, SIZE))
        limits = cls.of(_number(millis), _number(size), made)
        unread = properties.get(f"{_PREFIX}{UNREAD}")
        return limits if unread is None else replace(limits, unread=unread == "true")

    @classmethod
    def of(
        cls, millis: int | None, size_bytes: int | None, default: TopicRetention | None = None
    ) -> TopicRetention:
        """Return limits as Kafka writes them, -1 for none; those that are None are default."""
        made = default or cls()
        if millis is not None:
            # Kafka's users write the largest of its numbers to say: never.
            forever = millis == _FOREVER or millis > _LONGEST
            age = None if forever else timedelta(milliseconds=millis)
            made = replace(made, age=age)
        if size_bytes is not None:
            made = replace(made, size_bytes=None if size_bytes == _FOREVER else size_bytes)
        return made

    def changed(
        self, millis: int | None, size_bytes: int | None, *, unread: bool | None
    ) -> TopicRetention:
        """Return it with other limits, as ``of`` reads them; what is None stays."""
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
        """Raise ConfigError for a limit that keeps nothing."""
        if self.age is not None and self.age <= timedelta():
            raise _too_small(AGE)
        if self.size_bytes is not None and self.size_bytes <= 0:
            raise _too_small(SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where somebody who reads a topic stands.

    Args:
        version: The newest version of which they need nothing more.
        running: Whether a batch of theirs is running, and reads files behind it.
    """

    reader: str
    version: int
    running: bool = False


TopicReaders: TypeAlias = Callable[[str], Sequence[Reading]]
"""Returns who reads a topic, by its name; what cannot be known is raised as HeadraceError."""


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _too_small(field: str) -> ConfigError:
    problem = "A topic cannot have a retention of 0 or less."
    return ConfigError(problem, field=field, fix="Use a number above 0, or -1 for no limit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long events are kept.

    Args:
        states_count: How many of them, the newest, of each connector and each task.
        changes_age: How long changes by people are; never shorter than states.
    """

    states_age: timedelta = timedelta(days=7)
    states_count: int = 1000
    changes_age: timedelta = timedelta(days=365)


def topic_matcher(pattern: str) -> Callable[[str], object]:
    """Return what tells whether a whole name matches, in time linear in its length.

    Python's own engine may take for ever, and lets no other thread run meanwhile. Raises
    ConfigError: the pattern is not valid, or has what takes more than linear time.
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
            fix="Write it in the syntax of RE2, which is Java's without look-arounds, back "
            "references and possessive quantifiers.",
            field="topics.regex",
        ) from error
    return matcher
