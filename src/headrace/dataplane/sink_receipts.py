"""What a sink's target already holds of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model import Batch
    from headrace.sdk import FrameSink

__all__ = ["held_receipt", "sink_marks"]


def held_receipt(sink: FrameSink, mark: Mark, topic: str, batch: Batch) -> str | None:
    """Return the receipt of a batch that the target holds, None for one to be written.

    Guarantee 2: a mark that is found stands for this batch only if the batch ran before, over
    the same range. Anything else was written by another worker, or before the store was set
    back, and to take it for success would lose the rows of this batch.

    Raises:
        StaleEpochError: The target is ahead of the store.
    """
    if not (batch.again or batch.resumed):
        return None
    receipt = sink.committed(mark, topic)
    if receipt is None:
        return None
    mark.require_range(receipt)
    if not batch.again:
        raise mark.ahead()
    return receipt


def sink_marks(
    application: str, sinks: Sequence[FrameSink], names: Sequence[str], batch: Batch
) -> list[tuple[int, FrameSink, Mark]]:
    """Give each sink of a task its number and its mark of a batch.

    Marks go by names, as a sink may get another number while a batch is in doubt.
    """
    return [
        (number, sink, Mark(_joined(application, name), batch.id, batch.epoch, batch.range))
        for number, (sink, name) in enumerate(zip(sinks, names, strict=True))
    ]


def _joined(application: str, name: str) -> str:
    return f"{application}-{name}" if name else application
