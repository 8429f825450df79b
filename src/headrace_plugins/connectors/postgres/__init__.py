"""PostgreSQL: the source that follows changes, and the sink.

The source is in `source.py`: `replication.py` streams the log, `wal.py` reads it, `pgoutput.py`
decodes it, `slot_log.py` manages slot and publication, and `slot_monitor.py` watches them. Code
for all logs belongs in `changes`, code for all sinks in `databases`.
"""
