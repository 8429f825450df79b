"""A source and a sink for Delta tables.

Source: `reader.py` gives the batches, `history.py` reads the log, `frames.py` the files. Sink:
`sink.py` stages, `columns.py` fits, `commit.py` commits, `table.py` makes and keeps the table.
Never: a commit without its batch's mark.
"""

from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.delta.source import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
