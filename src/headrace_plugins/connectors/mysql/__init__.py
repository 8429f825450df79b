"""MySQL and MariaDB: the source that follows changes, and the sink.

`source.py`; `binlog.py` follows the log that `binlog_dump.py` gets, `binlog_events.py` and
`binlog_rows.py` decode it, `binary_log.py` has the server's side of it. Never: what all logs
have in common, which is in `changes`, or in `databases` for the sink.
"""

from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.mysql.source import MysqlSource

__all__ = ["MysqlSink", "MysqlSource"]
