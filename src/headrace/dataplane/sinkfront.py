"""What stands before a sink and takes its place."""

from __future__ import annotations

from headrace.sdk import BatchSink, FrameSink, RecordSink
from headrace.sdk.sink import class_name

__all__ = ["SinkFront", "sink_title"]


class SinkFront(FrameSink):
    """Stands before another sink, and says of itself what the class of that one says."""

    def __init__(self, inner: FrameSink | BatchSink | RecordSink) -> None:
        """Stand before ``inner``."""
        self.ordered = inner.ordered  # type: ignore[misc]  # the class attribute of this one sink
        self.takes_many_topics = inner.takes_many_topics  # type: ignore[misc]
        self.title = sink_title(inner)
        if isinstance(inner, FrameSink):
            self.counting = inner.counting  # type: ignore[misc]
            self.verifies = inner.verifies  # type: ignore[misc]


def sink_title(sink: FrameSink | BatchSink | RecordSink) -> str:
    """Return the name of the sink's class, as dead letters tell it."""
    return sink.title if isinstance(sink, SinkFront) else class_name(type(sink))
