"""What a connector's author writes: how the kit reaches the outside system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.sdk.sink import SinkConnector
    from headrace.sdk.sources import SourceConnector
    from headrace.sdk.testing.rows import Row


@dataclass(frozen=True)
class BadConfig:
    """A configuration that validation must refuse.

    Args:
        changes: Keys to set in the good configuration; None takes a key out.
        field: The key that the error must name.
    """

    changes: Mapping[str, str | None]
    field: str


@dataclass(frozen=True)
class DeadLetter:
    """A record that was dead-lettered.

    Args:
        stage: Where it was rejected, such as ``TASK_PUT``.
        value: Its value as JSON gives it back.
    """

    stage: str
    value: Any


@dataclass(frozen=True)
class Arrived:
    """A record of the source under test, as its sink got it.

    Args:
        value: The value; a dictionary when it has fields.
        key: The key.
        topic: The topic or stream that it was of.
        batch: Its batch, as (task, id).
    """

    value: Any
    key: Any
    topic: str
    batch: tuple[int, int]


class Driver(ABC):
    """Reaches one connector's outside system, empty at first. Made anew for each test."""

    @abstractmethod
    def config(self) -> Mapping[str, str]:
        """Return a good configuration of the connector. Asked for at each start."""

    def bad_configs(self) -> Sequence[BadConfig]:
        """Return configurations that must be refused, each with the key to be named.

        The kit takes out required keys and breaks numbers by itself.
        """
        return ()

    def close(self) -> None:  # noqa: B027 - optional
        """Let go of everything. Called at the end of each test."""


class SourceDriver(Driver):
    """Puts rows into the system that a source reads."""

    connector: type[SourceConnector]
    """The connector under test."""
    fixed: ClassVar[str] = ""
    """Why the system takes no rows while a task is open, if so; the reason is shown."""

    @abstractmethod
    def append(self, rows: Sequence[Row]) -> None:
        """Put rows into the outside system, after those that are there, at once.

        They are visible to the source when this returns.
        """

    def row(self, number: int) -> Row:
        """Return the row of that number, from 0; each differs from all others.

        Override it where the system has other columns.
        """
        return {"id": number, "text": f"row {number}"}

    def seen(self, record: Arrived) -> Row:
        """Return the row that was appended, given the record that it became.

        Override it where the source adds, renames or converts something.
        """
        row: Row = record.value
        return row


class SinkDriver(Driver):
    """Reads what a sink wrote, by other means than the sink's own."""

    connector: type[SinkConnector]
    """The connector under test."""

    @abstractmethod
    def read_back(self) -> list[Row]:
        """Return all rows that any reader of the target would see; none at first.

        Use an independent reader. Lists of pairs will do for maps.
        """

    def refused(self, number: int) -> Row:
        """Return a row with the ``id`` that the target refuses; get the target ready for it.

        The good rows around it have an ``id`` and a ``text``, see
        ``headrace.sdk.testing.sink_checks.PLAIN``. Called before each of them is written.
        """
        message = "Override refused, or set cannot_refuse."
        raise AssertionError(message)

    def break_target(self) -> None:
        """Make the target refuse writes from now on, as in an outage."""
        message = "Override break_target and repair_target, or set cannot_break."
        raise AssertionError(message)

    def repair_target(self) -> None:
        """End the outage."""
