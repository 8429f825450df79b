"""Options and results of a comparison of tables."""

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
    """Options of a comparison.

    Args:
        max_differences: How many rows that differ are shown per table.
        settle: How long to wait before reading keys that differ again; zero to not read again.
        allow_loss: Whether to ignore digits that the target's type cannot represent.
        sleep: Waits for a number of seconds.
        report: Called with the description of each step.
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
        kind: ``missing`` in the target, ``extra`` in the target, or ``different``.
        key: The columns that identify the row; empty if there is no key.
        columns: The values of both sides: of the columns that differ or, if one side does not
            have the row, of all columns: ``{"source": ..., "target": ...}``.
    """

    kind: str
    key: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many rows differ.

    Args:
        keys: How many keys have rows that differ.
        repeated: Additional source rows with the same key, if the target stores one per key.
    """

    keys: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """The result of comparing a table.

    Args:
        source_rows: Rows that are expected in the target.
        filtered, rejected: Rows of the source that the chain drops, or rejects.
        figures: The final differences.
        moved: Keys that differed at first but not when they were read again.
        lacking: Columns that the target does not have.
        notes: Remarks for the user, such as the digits that a type cannot represent.
        repaired: Rows that were sent again, including rows to delete.
        error: Why the table could not be compared, and the fix; empty if it was compared.
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
        """Whether the target has the same rows as the source."""
        return not self.figures.keys and not self.lacking and not self.error


@dataclass(frozen=True)
class Resending:
    """Records that a repair sends to a sink.

    Args:
        frame: Columns ``key``, ``value``, ``headers`` and ``timestamp``; null values delete.
    """

    frame: DataFrame
    key_schema: Schema
    value_schema: Schema
