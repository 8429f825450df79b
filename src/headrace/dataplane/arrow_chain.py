"""A chain in Arrow: the rows that it makes, without plans and without the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import ArrowParts, RecordError
from headrace.sdk.keyed_rows import DELETED, KeyedRows, NotKeyedError

if TYPE_CHECKING:
    from headrace.dataplane.chain import Step

_Rows: TypeAlias = Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]


def keyed_chain(steps: Sequence[Step], records: ArrowParts) -> KeyedRows | None:
    """Return what makes rows of records as a chain does; None if only SQL can.

    Only a chain of one step has that.
    """
    if len(steps) != 1 or steps[0].predicate is not None:
        return None
    return steps[0].transform.keyed_rows(records.schema)


def inserted_rows(steps: Sequence[Step], records: ArrowParts) -> ArrowParts | None:
    """Return the rows that a chain makes of records that are all inserts; None if only SQL can.

    Reading them raises RecordError for a record that is no insert.
    """
    if not steps:
        return records
    keyed = keyed_chain(steps, records)
    if keyed is None:
        return None
    return replace(records, read=partial(_rows, records.read, keyed), raw={})


def _rows(read: Callable[[Any], _Rows], keyed: KeyedRows, part: Any) -> _Rows:
    for records, rejected in read(part):
        try:
            made = keyed.make(records)
        except NotKeyedError:
            made = None
        if made is None or pc.any(made.column(DELETED)).as_py():
            raise RecordError(problem="A record is no insert, as its source has said.")
        yield made.drop_columns([DELETED]), rejected
