"""Places in a log and their fields, and the interface of readers, in processes of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_plugins.databases.catalog import Column, TableName

Offset: TypeAlias = Mapping[str, Any]
"""A place in a log, as in a task's position: only JSON values."""

MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OffsetField:
    """A field of an offset.

    Args:
        name: The name of the field.
        expected: The description of valid values, for errors.
        is_valid: Whether a JSON value is valid.
        required: Whether the field is required.
    """

    name: str
    expected: str
    is_valid: Callable[[Any], bool]
    required: bool = False

    @classmethod
    def integer(
        cls, name: str, at_least: int, at_most: int = MOST, *, required: bool = False
    ) -> OffsetField:
        """Return a field with an integer in a range."""
        expected = f"an integer from {at_least} to {at_most}"
        return cls(
            name, expected, lambda v: type(v) is int and at_least <= v <= at_most, required
        )

    @classmethod
    def text(cls, name: str) -> OffsetField:
        """Return a field with a non-empty string."""
        return cls(name, "a string", lambda v: isinstance(v, str) and v != "")

    @classmethod
    def mark(cls, name: str) -> OffsetField:
        """Return a field that is true or missing."""
        return cls(name, "true, or omitted", lambda v: v is True)


def check_fields(
    what: str, offset: object, fields: Sequence[OffsetField], example: str
) -> Mapping[str, Any]:
    """Return an offset after validating that it is an object of these fields.

    Raises ConfigError with the invalid field, its value, and the expected values.

    Args:
        what: The kind of offset, such as ``position of a table``.
        offset: The value that a user has set.
        fields: The allowed fields.
        example: An example as JSON.
    """
    wrong, expected = "", ""
    if not isinstance(offset, Mapping):
        wrong, expected = "it is not an object", "Expected an object."
        offset = {"": offset}
    else:
        for each in fields:
            if each.name not in offset and each.required:
                wrong = f"{each.name} is missing"
            elif each.name in offset and not each.is_valid(offset[each.name]):
                wrong = f"{each.name} is {offset[each.name]!r}"
            if wrong:
                expected = f"{each.name} must be {each.expected}."
                break
        unknown = sorted(set(offset) - {each.name for each in fields})
        if not wrong and unknown:
            wrong = f"{unknown[0]} is unknown"
            expected = f"Known fields: {', '.join(each.name for each in fields)}."
    if wrong:
        shown = offset[""] if list(offset) == [""] else dict(offset)
        raise ConfigError(
            problem=f"Invalid {what} {shown}: {wrong}.",
            fix=f"{expected} Write {example}.",
            field="offsets",
        )
    return offset


CREATE, UPDATE, DELETE, TRUNCATE, READ = "c", "u", "d", "t", "r"
"""The operations in Debezium's envelope."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table at some point of the log.

    A change of the columns or the key results in another shape. Sent as JSON and pickled.

    Args:
        table: The table's name.
        columns: The columns. All are nullable, regardless of the table: a row before a change
            may only have its key, and the log may have rows from before a constraint.
        key: The columns that identify a row; empty without a key.
    """

    table: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of one table, in the order of the log.

    Args:
        shape: The table's shape for all changes.
        rows: ``op`` (STRING), ``ts_us`` (INT64, commit time in microseconds since 1970),
            ``before`` and ``after`` (each a STRUCT of the shape's columns, or null), and then
            the other fields per change of an envelope's ``source``, such as ``lsn``. Values
            are in the log's format: text if its records are text.
    """

    shape: Shape
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the log: the runs of complete or partial transactions.

    The order between tables is not preserved within a piece, so a table has at most one run
    per shape.

    Args:
        runs: The changes; empty if only the place has advanced.
        end: The place after the last transaction. None if the transaction continues in the
            next piece.
        ts_us: The commit time of the last transaction.
    """

    runs: Sequence[Run]
    end: Offset | None
    ts_us: int | None = None


class LogReader(ABC):
    """Reads a log from a place, in a separate process. Not thread-safe.

    The result depends only on the log: the transactions that end between two places are the
    same after every restart.
    """

    @abstractmethod
    def start(self, after: Offset, cut: Offset | None) -> None:
        """Connect, and seek to the place ``after``.

        ``cut`` is a place where a piece must end, as a batch planned before a restart ends
        there. Raises RetriableError if the server is unavailable or busy, and DataLostError if
        the log no longer has the changes after the place.
        """

    @abstractmethod
    def read(self, seconds: float) -> Piece | None:
        """Return the next piece, waiting at most ``seconds``; None if there is none.

        A piece has at most some megabytes, and ends with a transaction if possible. If a
        table's shape changes, a new piece begins with the transaction of the new shape. While
        the followed tables do not change, pieces without runs report the progress of the log.
        """

    @abstractmethod
    def confirm(self, place: Offset) -> None:
        """Release the log up to a place, which is durable in the targets."""

    @abstractmethod
    def idle(self) -> None:
        """Keep the connection alive while reading is paused, as the spool is full."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnect. Never raises."""
