"""Kafka Connect's rules for values, dates and patterns. Not a connector for Kafka.

In it: code that transforms and converters share to match Kafka Connect. Never: a plugin.
"""
