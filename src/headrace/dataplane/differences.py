"""What a comparison of tables is told, and what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from headrace.sdk import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How rows are compared.

    Args:
        max_differences: How many rows that differ are shown of each table.
        settle: How long is waited before keys that differ are read again; zero for never.
        allow_loss: Whether digits that a target's type cannot hold make no difference.
        sleep: Waits for so many seconds.
        report: Called with what is being done.
    """

    max_differences: int = 20
    settle: timedelta = timedelta(seconds=5)
    allow_loss: bool = False
    sleep: Callable[[float], None] = time.sleep
    report: Callable[[str], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs.

    Args:
        kind: ``missing`` in the target, ``extra`` in it, or ``different``.
        key: What identifies it; empty where nothing does.
        columns: The values of both sides, of the columns that differ or, where one side has no
            such row, of all: ``{"source": ..., "target": ...}``.
    """

    kind: str
    key: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many rows differ.

    Args:
        keys: How many keys have rows that do.
        repeated: Rows of the source behind another one with the same key, of which the target
            keeps one.
    """

    keys: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """What the comparison of a table has found.

    Args:
        source_rows: Rows that are expected in the target.
        filtered, rejected: Rows of the source that the chain drops, or rejects.
        figures: What differs in the end.
        moved: Keys that have differed when they were read first, and then no more.
        lacking: Columns that the target does not have.
        notes: What a person should know, such as the digits that a type cannot hold.
        repaired: Rows that were sent again, those to be deleted included.
        error: Why it could not be compared, and what to do; empty if it was.
    """

    stream: str
    target: str
    key: Sequence[str]
    source_rows: int
    target_rows: int
    filtered: int = 0
    rejected: int = 0
    figures: Figures = field(default_factory=Figures)
    moved: int = 0
    lacking: Sequence[str] = ()
    notes: Sequence[str] = ()
    differences: Sequence[Difference] = ()
    repaired: int = 0
    error: str = ""

    @property
    def equal(self) -> bool:
        """Whether the target holds what the source has."""
        return not self.figures.keys and not self.lacking and not self.error


@dataclass(frozen=True)
class Resending:
    """Records that a repair sends to a sink.

    Args:
        frame: Columns ``key``, ``value``, ``headers`` and ``timestamp``; a null value deletes.
    """

    frame: DataFrame
    key_schema: Schema
    value_schema: Schema
