"""PostgreSQL: the source that follows changes, and the sink.

The source is in `source.py`: `replication.py` streams the log, `wal.py` reads it, `pgoutput.py`
decodes it, `slot_log.py` manages slot and publication, and `slot_monitor.py` watches them. Code
for all logs belongs in `changes`, code for all sinks in `databases`.
"""

from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
