"""The log of a database, as a process of its own reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_plugins.databases.catalog import Column, TableName

Offset: TypeAlias = Mapping[str, Any]
"""A place in a log, as the position of a task has it: JSON values only."""

CREATE, UPDATE, DELETE, TRUNCATE, READ = "c", "u", "d", "t", "r"
"""What a change does, as Debezium's envelope says it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that a table has at some point of the log.

    A table whose columns or key change gets another shape. It is sent as JSON and pickled.

    Args:
        table: The table's name.
        columns: Its columns. Each may be null, whatever the table says: a row before a change
            may have its key only, and the log has rows of before a constraint was added.
        key: The columns that identify a row; empty without any.
    """

    table: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of one table, in the order of the log.

    Args:
        shape: What the table looks like in all of them.
        rows: ``op`` (STRING), ``ts_us`` (INT64, microseconds since 1970 of the commit),
            ``before`` and ``after`` (each a STRUCT of the shape's columns, or null), and then
            what else the field ``source`` of an envelope has for each change, such as ``lsn``.
            Values are as the log has them: texts where its records are texts.
    """

    shape: Shape
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Piece:
    """What a reader has got from the log: runs of whole or of begun transactions.

    Between tables no order is kept within a piece, so a table has one run in it at most, or
    several with different shapes.

    Args:
        runs: The changes; none where only the place has moved.
        end: The place behind the last transaction, if the piece ends with one. None while a
            transaction goes on in the next piece.
        ts_us: When the last of its transactions was committed.
    """

    runs: Sequence[Run]
    end: Offset | None
    ts_us: int | None = None


class LogReader(ABC):
    """Reads a log from a place on. It lives in a process of its own, one thread uses it.

    What it gives depends on the log alone: the transactions that end behind one place and not
    behind another are the same in every life.
    """

    @abstractmethod
    def start(self, after: Offset, cut: Offset | None) -> None:
        """Connect, and go to the place behind ``after``.

        ``cut`` is a place where a piece has to end, as a batch of an earlier life ends there.
        Raises RetriableError where the server is away or busy, and DataLostError where the log
        has nothing any more of what comes after the place.
        """

    @abstractmethod
    def read(self, seconds: float) -> Piece | None:
        """Return what has come, waiting no longer than that; None for nothing at all.

        A piece is some megabytes at the most, and where it can it ends with a transaction. A
        table whose shape changes begins a new piece with the transaction that has the new
        shape. Where nothing comes for the tables that are followed, pieces without runs tell
        that the log goes on.
        """

    @abstractmethod
    def confirm(self, place: Offset) -> None:
        """Learn that everything up to a place is durable in the targets: the log may go."""

    @abstractmethod
    def idle(self) -> None:
        """Keep the connection alive while nothing is read, as what was read is not yet used."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnect. Never raises."""
