"""What values, headers, dates and patterns mean in Kafka Connect: no connector for Kafka.

In it: what transforms and converters share to give its results. Never: a plugin.
"""
