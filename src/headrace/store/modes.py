"""How a transaction stands to the others, said once for every kind of database."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_OPTION = "headrace_mode"


class Mode(Enum):
    """What a transaction needs to be kept from."""

    READ = "read"
    """Nothing: each statement sees what is committed."""
    SNAPSHOT = "snapshot"
    """Changes by others: all its statements see the rows as they were when it began."""
    WRITE = "write"
    """Others that write the same rows, once it has locked them."""
    ALONE = "alone"
    """All others that ask to be alone."""


def in_mode(engine: Engine, mode: Mode) -> Engine:
    """Return the engine for transactions of this kind; it shares the connections."""
    return engine.execution_options(**{_OPTION: mode})


def mode_of(connection: Connection) -> Mode:
    """Return the mode of the transaction that begins on a connection."""
    found: Mode = connection.get_execution_options().get(_OPTION, Mode.READ)
    return found
