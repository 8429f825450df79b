"""Records that a target refuses: told before they are written, or found while they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headrace.sdk.errors import RecordError

__all__ = ["RECORD_ID", "Refusal", "Refused", "Verified", "class_name"]

RECORD_ID = "record_id"
"""A BIGINT column of the frames of a sink that verifies. Records that are equal in all their
parts share one, and one refusal is about one of them, no matter which."""


def class_name(kind: type) -> str:
    """Return the name of a class as dead letters tell it."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A condition for records that a target cannot take.

    Args:
        condition: SQL over the columns that ``FrameSink.write`` gets, never null.
        problem: What is wrong with such a record, as a sentence.
        fix: What to do about it, as a sentence.
        field: The field or key that is at fault.
        exception: The class of the error, as dead letters tell it.
    """

    condition: str
    problem: str
    fix: str = ""
    field: str | None = None
    exception: str = class_name(RecordError)

    @property
    def message(self) -> str:
        """The text of the error, as dead letters tell it."""
        return f"{self.field}: {self.problem}" if self.field else self.problem


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that a target has refused.

    Args:
        record: Its ``RECORD_ID``.
        exception: The class of the sink's error.
        message: The error's text.
    """

    record: int
    exception: str
    message: str

    @classmethod
    def by(cls, record: int, error: Exception) -> Refused:
        """Return a record that was refused by an error."""
        problem = getattr(error, "problem", None) or str(error)
        return cls(record, class_name(type(error)), problem)


@runtime_checkable
class Verified(Protocol):
    """A staged write of a sink that verifies; see ``FrameSink.verifies``."""

    def refused(self) -> Sequence[Refused]:
        """Return the records that the target refuses, which the staged data is without."""
