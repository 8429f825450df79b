"""MySQL and MariaDB: the source that follows changes, and the sink.

The source is in `source.py`: `binlog_dump.py` requests the log, `binlog_reader.py` reads it,
`binlog_events.py` decodes its events, `binlog_runs.py` and `binlog_rows.py` their rows, with
the tables of `binlog_shapes.py`. `binary_log.py` and `binlog_settings.py` query the server.
Code for all logs belongs in `changes`, code for all sinks in `databases`.
"""
