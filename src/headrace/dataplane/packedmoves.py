"""Packed rows in the schemas that their targets are to be given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture.rows import Slices, sieve
from headrace.evolution.apply_arrow import json_text, moved_array
from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import conform, to_arrow

if TYPE_CHECKING:
    from headrace.evolution import Move

__all__ = ["MISFIT", "Moves", "misfit_rows", "moved_rows"]

Moves = Mapping[tuple[str, Schema], "Move"]
"""How rows of a stream, with the schema that they have, get the one that they are to have."""

MISFIT = "stream string, raw string, message string"
"""The columns of ``misfit_rows``."""


def moved_rows(
    batch: pa.RecordBatch, move: Move
) -> tuple[list[pa.RecordBatch], list[tuple[int, RecordError]]]:
    """Return rows in the target's schema, and the number and the error of each that cannot."""
    assert move.source is not None
    target = to_arrow(move.target.replaced(optional=False))
    rows = conform(batch, to_arrow(move.source.replaced(optional=False)))

    def moved(some: Any) -> pa.RecordBatch:
        fields = list(some.batch.schema)
        value = pa.StructArray.from_arrays(some.batch.columns, fields=fields)
        return conform(pa.RecordBatch.from_struct_array(moved_array(move, value)), target)

    return sieve(Slices(rows), moved)


def misfit_rows(stream: str, batch: pa.RecordBatch, move: Move) -> pa.RecordBatch:
    """Return the rows that do not fit, as JSON, each with the reason."""
    _, bad = moved_rows(batch, move)
    told = [
        {"stream": stream, "raw": json_text(batch.slice(at, 1).to_pylist()[0]), "message": why}
        for at, why in ((at, error.problem) for at, error in bad)
    ]
    names = [name.partition(" ")[0] for name in MISFIT.split(", ")]
    return pa.RecordBatch.from_pylist(told, pa.schema([(n, pa.string()) for n in names]))
