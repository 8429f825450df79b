"""PostgreSQL: the source that follows changes, and the sink.

`source.py`; `wal.py` follows the log that `replication.py` gets, `pgoutput.py` decodes it,
`slot_log.py` has slot and publication, `slot_monitor.py` watches them. Never: what all logs
have in common, which is in `changes`, or in `databases` for the sink.
"""

from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
