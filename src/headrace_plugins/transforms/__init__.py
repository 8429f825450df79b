"""The built-in transforms: Kafka Connect's, RocketMQ Connect's and Headrace's own.

In it: records to records, as SQL expressions or on Arrow. Never: I/O, except Lookup's reads
and Deduplicate's state.
"""
