"""MySQL and MariaDB: the source that follows changes, and the sink.

The source is in `source.py`: `binlog_dump.py` requests the log, `binlog.py` reads it,
`binlog_events.py` and `binlog_rows.py` decode it, and `binary_log.py` queries the server about
it. Code for all logs belongs in `changes`, code for all sinks in `databases`.
"""
